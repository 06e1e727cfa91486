//! The input of a tool: its options as values, and the sizes that depend on the target.
//!
//! Invariant: an invalid value is refused with the option's name and the valid values. Called by
//! the tools.

use md::{BareNumber, parse_size};

use super::error::{OptionError, SizingError};

/// Sizes that depend on the target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizing {
    /// Memory of the machine, bytes: the most that a page cache may hold.
    pub memory_bytes: u64,
    /// The size given by option (`--size`), bytes.
    pub size: Option<u64>,
    /// Default size of the target, bytes, for programs without a size of their own.
    pub usual: Option<u64>,
    /// Capacity of the target, bytes; `None`: unlimited.
    pub capacity: Option<u64>,
    /// Whether I/O passes through the page cache.
    pub page_cache: bool,
    /// Bytes of a whole stripe; `None`: unknown.
    pub stripe_bytes: Option<u64>,
}

impl Sizing {
    /// The size of all files together: what was requested; or twice the memory, so that a page
    /// cache cannot hold it; or all that fits.
    ///
    /// # Errors
    /// When what was requested does not fit.
    pub fn bytes(&self) -> Result<u64, SizingError> {
        if let (Some(size), Some(capacity)) = (self.size, self.capacity)
            && size > capacity
        {
            return Err(SizingError::TooLarge { bytes: size, capacity });
        }
        let double = self.memory_bytes.saturating_mul(2);
        let usual = match (self.page_cache, self.capacity) {
            (true, Some(capacity)) => double.min(capacity),
            (true, None) => double,
            (false, Some(capacity)) => capacity,
            (false, None) => 1 << 30,
        };
        Ok(self.size.or(self.usual).unwrap_or(usual))
    }

    /// [`Sizing::bytes`] rounded to whole units, at least one.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn whole(&self, unit: u64) -> Result<u64, SizingError> {
        let bytes = self.bytes()?;
        match bytes / unit * unit {
            0 => Err(SizingError::TooSmall { bytes, block: unit }),
            whole => Ok(whole),
        }
    }
}

/// The options of a choice, for the tool that reads them.
pub struct ProgramOptions<'g> {
    options: &'g [(String, Option<String>)],
    job: Option<&'g str>,
}

impl<'g> ProgramOptions<'g> {
    /// Options as they were given, and the contents of the job file.
    pub(super) fn new(
        options: &'g [(String, Option<String>)],
        job: Option<&'g str>,
    ) -> ProgramOptions<'g> {
        ProgramOptions { options, job }
    }

    /// The path of the job file and what it holds, where the tool takes one.
    pub fn job(&self) -> Option<(&str, &str)> {
        Some((self.options.first()?.0.as_str(), self.job?))
    }

    fn value(&self, name: &str) -> Option<Result<&str, OptionError>> {
        let (_, value) = self.options.iter().find(|(given, _)| given == name)?;
        let example = Some("4");
        let error = || OptionError::NoValue { name: name.to_string(), example };
        Some(value.as_deref().ok_or_else(error))
    }

    /// Whether a flag is set.
    ///
    /// # Errors
    /// When it was given a value.
    pub fn flag(&self, name: &str) -> Result<bool, OptionError> {
        match self.options.iter().find(|(given, _)| given == name) {
            None => Ok(false),
            Some((_, None)) => Ok(true),
            Some((name, Some(value))) => {
                Err(OptionError::NotAFlag { name: name.clone(), value: value.clone() })
            }
        }
    }

    /// Whatever was given as its value, if it was given.
    ///
    /// # Errors
    /// When it was given none.
    pub fn text(&self, name: &str) -> Result<Option<&str>, OptionError> {
        self.value(name).transpose()
    }

    /// One of some words, if there is one.
    ///
    /// # Errors
    /// When it is another.
    pub fn word(
        &self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, OptionError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let value = value?;
        match words.iter().find(|word| **word == value) {
            Some(word) => Ok(Some(word)),
            None => Err(OptionError::Value {
                name: name.to_string(),
                value: value.to_string(),
                wanted: format!("one of {}", words.join(", ")).into(),
            }),
        }
    }

    /// A number in a range, or the usual one.
    ///
    /// # Errors
    /// When it is none, or outside.
    pub fn number(
        &self,
        name: &str,
        usual: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, OptionError> {
        let Some(value) = self.value(name) else { return Ok(usual) };
        let value = value?;
        let number = value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| OptionError::Value {
            name: name.to_string(),
            value: value.to_string(),
            wanted: format!("a number from {} to {}", range.start(), range.end()).into(),
        })
    }

    /// A size, if there is one. `bare`: what the tool means by a number without a unit.
    ///
    /// # Errors
    /// When it is none, or 0.
    pub fn size(&self, name: &str, bare: BareNumber) -> Result<Option<u64>, OptionError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let size = |source| OptionError::Size { name: name.to_string(), source };
        match parse_size(value?, bare).map_err(size)? {
            0 => Err(OptionError::Bytes { name: name.to_string(), wanted: "a size above 0" }),
            bytes => Ok(Some(bytes)),
        }
    }

    /// The size of a block, or the usual one: a multiple of 256 bytes, at most 16 MiB.
    ///
    /// # Errors
    /// When it is none.
    pub fn block(&self, name: &str, usual: u64, bare: BareNumber) -> Result<u64, OptionError> {
        let bytes = self.size(name, bare)?.unwrap_or(usual);
        match bytes % 256 == 0 && bytes <= 16 << 20 {
            true => Ok(bytes),
            false => Err(OptionError::Bytes {
                name: name.to_string(),
                wanted: "a block is a multiple of 256 bytes, at most 16M",
            }),
        }
    }
}
