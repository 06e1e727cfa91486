//! Selects the kernels: by name, by the CPU's features, or by measurement.
//!
//! Invariant: kernels of intrinsics are handed out only after they gave the known answers
//! (`self_check`).

use std::sync::OnceLock;

use crate::kernels::{Choice, Kernels, Unavailable};
use crate::{calibrate, self_check};

impl Kernels {
    /// The preferred kernels of this CPU, by its features alone.
    ///
    /// [`Kernels::calibrated`] measures instead. Both try kernels of intrinsics before they hand
    /// them out, which takes some hundred microseconds when it is done for the first time.
    pub fn best() -> Kernels {
        let preferred = Kernels::NAMES.iter().rev();
        preferred.flat_map(|name| Kernels::by_name(name)).next().unwrap_or(Kernels::portable())
    }

    /// The kernels that turn out to be the fastest here, by the caller's clock (this crate has
    /// none): it answers in any unit, and must not run backwards.
    ///
    /// Takes a few milliseconds; call it once, and hand the value down. A clock that is too coarse
    /// to tell kernels apart leaves it at [`Kernels::best`], as do others that are only a little
    /// ahead.
    pub fn calibrated(clock: impl FnMut() -> u64) -> Kernels {
        calibrate::fastest(Kernels::available(), clock)
    }

    /// All kernels that this CPU can run, the preferred ones last.
    pub fn available() -> impl Iterator<Item = Kernels> {
        Kernels::NAMES.iter().filter_map(|name| Kernels::by_name(name).ok())
    }

    /// The kernels of that name (see [`Kernels::NAMES`]), or why they cannot be had.
    pub fn by_name(name: &str) -> Result<Kernels, Unavailable> {
        static PASSED: [OnceLock<bool>; Kernels::NAMES.len()] =
            [const { OnceLock::new() }; Kernels::NAMES.len()];
        let known = Kernels::NAMES.iter().zip(&PASSED).find(|(known, _)| **known == name);
        let (_, passed) = known.ok_or(Unavailable::UnknownName)?;
        Kernels(Choice::detect(name)?).admitted(passed)
    }

    /// These kernels, if they gave the right answers when they were tried, or do so now.
    pub(crate) fn admitted(self, passed: &OnceLock<bool>) -> Result<Kernels, Unavailable> {
        let plain = matches!(self.0, Choice::Reference | Choice::Portable);
        let right = plain || *passed.get_or_init(|| self_check::passes(self));
        if right { Ok(self) } else { Err(Unavailable::Wrong) }
    }
}
