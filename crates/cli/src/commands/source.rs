//! What is read of members that nothing is written to: the options of the command line for `admin`,
//! and the options that override a refusal.
//!
//! Called from `dump` and `serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use ::guess::{Guessed, Judgement, Known};
use admin::rescue::{
    Check, Description, Rescue, RescueError, RescueOptions, rescue, rescue_described,
};
use admin::{Members, described};
use anyhow::{Error, Result, anyhow, bail};
use clap::Args;
use md::assemble::{AS_GIVEN, ExplicitSpec, Options, Override};
use md::{Layout, Level};
use parity::Kernels;

use crate::commands::guess::{self, Effort};
use crate::error::{of_option, reworded};
use crate::members::{choice_text, is_missing};
use crate::size_args::{parse_layout, parse_level, parse_sectors};

/// The members, and what is read of them.
#[derive(Clone, Args)]
pub struct SourceArguments {
    /// Image files, partitions or disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one;
    /// :map=FILE behind it for ddrescue's mapfile of a copy, :map=none for none; with --level also
    /// 'missing'
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<OsString>,
    /// Select one of several arrays by its UUID or name
    #[arg(long, value_name = "UUID|NAME")]
    pub array: Option<String>,
    /// The member of each slot, as indexes into the list of members, from 0: 0,2,missing,1
    #[arg(long, value_delimiter = ',', value_name = "PLACES")]
    pub order: Vec<String>,
    /// Use members with older event counts where no other is left: their data may be stale
    #[arg(long, help_heading = "Member selection")]
    pub ignore_events: bool,
    /// Accept superblocks with a wrong checksum
    #[arg(long, help_heading = "Member selection")]
    pub ignore_checksums: bool,
    /// Read an array that is refused as too risky, and print the risk; implies --ignore-events
    #[arg(long)]
    pub force: bool,
    /// Read through an overlay written by an earlier run
    #[arg(long, value_name = "FILE", help_heading = "Member selection")]
    pub overlay: Option<PathBuf>,

    /// Find the geometry in the contents, as 'guess' does; without N only an exact one is used,
    /// with N the Nth of the list
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "0",
          conflicts_with_all = ["level", "array", "order", "ignore_events", "ignore_checksums",
                                "force"],
          help_heading = "Without superblocks")]
    pub guess: Option<u16>,
    /// RAID level, if superblocks are lost or wrong: members are given in slot order, and what
    /// superblocks and contents say against it is a doubt
    #[arg(long, value_parser = parse_level,
          conflicts_with_all = ["array", "ignore_events", "ignore_checksums", "force"],
          help_heading = "Without superblocks")]
    pub level: Option<Level>,
    /// Layout, by md's name or number [default: md's default]; without --level, that of a RAID 0
    /// whose superblocks do not record it
    #[arg(long, conflicts_with = "guess", help_heading = "Without superblocks")]
    pub layout: Option<String>,
    /// Chunk size [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    pub chunk: Option<u64>,
    /// Number of slots
    #[arg(long, value_name = "N", requires = "level", help_heading = "Without superblocks")]
    pub raid_devices: Option<u16>,
    /// Data offset of each member [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    pub data_offset: Option<u64>,
    /// Space used on each member [default: that of the smallest member]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    pub size: Option<u64>,
}

/// How it is read.
#[derive(Clone, Copy)]
pub struct ReadOptions {
    /// What is compared with the redundancy.
    pub check: Check,
    /// What is proven right is served in place of what is proven wrong.
    pub correct: bool,
    /// Lost ranges are permitted.
    pub partial: bool,
}

/// Opens the members.
pub fn members(arguments: &SourceArguments) -> Result<Members> {
    let there: Vec<OsString> =
        arguments.members.iter().filter(|member| !is_missing(member)).cloned().collect();
    if there.len() < arguments.members.len() && arguments.level.is_none() {
        bail!(
            "'missing' is only for arrays without superblocks (--level); otherwise leave out \
             missing members"
        );
    }
    let overlay = arguments.overlay.as_deref();
    let named = arguments.level.is_some() || arguments.guess.is_some();
    let members = match named {
        true => Members::open_as_named(&there, overlay),
        false => Members::open(&there, overlay),
    };
    let mut members = members?;
    if let Some(text) = arguments.layout.as_deref().filter(|_| arguments.level.is_none()) {
        let Layout::Raid0(layout) = parse_layout(Level::Raid0, text)? else {
            unreachable!("a layout of RAID 0");
        };
        if !members.set_raid0_layout(layout) {
            bail!(
                "--layout: no member is one of a RAID 0 whose superblock does not record its \
                 layout; for arrays without superblocks --level is needed, too"
            );
        }
    }
    Ok(members)
}

/// What the options give.
pub enum Opened {
    /// An array that can be read.
    Array(Box<Rescue>),
    /// A guess that is not exact: what was found.
    NotExact(String),
}

/// Makes the array of the members readable.
pub fn open(arguments: &SourceArguments, read: &ReadOptions, members: &Members) -> Result<Opened> {
    match arguments.guess {
        Some(number) => guessed(arguments, read, members, number),
        None => Ok(Opened::Array(Box::new(read_from(arguments, read, members)?))),
    }
}

/// The array of a guess: an exact one, or the one of the list that is chosen by its number.
fn guessed(
    arguments: &SourceArguments,
    read: &ReadOptions,
    members: &Members,
    number: u16,
) -> Result<Opened> {
    let effort = Effort { thorough: false, budget: None };
    let searched = guess::search(members, &effort, Known::default(), &|| false)?;
    let answer = &searched.report.answer;
    let list: Vec<&Guessed> = answer.best.iter().chain(&answer.alternatives).collect();
    let chosen = match number {
        0 if answer.verdict == Judgement::Exact => list.first(),
        0 => None,
        number => match list.get(usize::from(number) - 1) {
            Some(chosen) => Some(chosen),
            None => bail!("--guess={number}: the list has {} geometries", list.len()),
        },
    };
    let Some(chosen) = chosen else {
        let text = guess::text(&searched);
        return Ok(Opened::NotExact(
            text + "raidlab: not exact; --guess=N dumps the Nth of the list\n",
        ));
    };
    let description = described(chosen, read.partial, read.check);
    let mut rescue = rescue_described(members, &description, Kernels::best())
        .map_err(|error| refusal(arguments, error))?;
    rescue.notes.insert(0, format!("guessed: {}", guess::summary(chosen, &searched.report)));
    if answer.verdict == Judgement::Exact {
        rescue.notes.retain(|note| note != AS_GIVEN);
    } else {
        rescue.doubts.push("the geometry was chosen from several that are possible".into());
    }
    rescue.name = "array as guessed".into();
    Ok(Opened::Array(Box::new(rescue)))
}

/// Makes the array of opened members readable.
pub fn read_from(
    arguments: &SourceArguments,
    read: &ReadOptions,
    members: &Members,
) -> Result<Rescue> {
    let opened = match arguments.level {
        Some(_) => rescue_described(members, &description(arguments, read)?, Kernels::best()),
        None => rescue(members, &options(arguments, read)?, Kernels::best()),
    };
    let mut opened = opened.map_err(|error| refusal(arguments, error))?;
    if let (None, Some(layout)) = (arguments.level, &arguments.layout) {
        opened.identity += &format!(" layout {layout}");
        opened.doubts.push(
            "The layout is as given, and superblocks do not record it: check whether the contents \
             make sense."
                .into(),
        );
    }
    Ok(opened)
}

/// A refusal, with the option that overrides it.
pub fn refusal(arguments: &SourceArguments, error: RescueError) -> Error {
    match error {
        RescueError::Choose { error, non_members } => {
            let text = choice_text(&error, arguments.array.as_deref());
            Error::new(error).context(text + &appended(&non_members))
        }
        RescueError::Order { .. } => of_option("--order")(error),
        RescueError::NeedsForce { .. } | RescueError::Partial { .. } => {
            let text = refusal_text(&error);
            Error::new(error).context(text)
        }
        RescueError::NoRedundancy { name } => {
            anyhow!("{name}: --check: these members have no redundancy to compare")
        }
        RescueError::NothingProven { .. } => reworded(error, |text| format!("--correct: {text}")),
        RescueError::Unread { .. } => {
            reworded(error, |text| format!("{text}; use 'missing' in its place"))
        }
        RescueError::Refused { .. }
        | RescueError::Geometry(_)
        | RescueError::Shared(_)
        | RescueError::Described(_) => error.into(),
    }
}

/// A refusal's text, with the option that overrides it where that is the same for all verbs.
pub fn refusal_text(error: &RescueError) -> String {
    match error {
        RescueError::NeedsForce { with, notes, .. } => {
            let option = match with {
                Override::Force => "--force",
                Override::IgnoreEvents => "--ignore-events",
                Override::Partial => "--partial",
            };
            format!("{error} ({option} reads it nevertheless){}", appended(notes))
        }
        RescueError::Partial { .. } => format!("{error} (--partial writes zeroes in its place)"),
        other => other.to_string(),
    }
}

fn appended(notes: &[String]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}

pub fn options(arguments: &SourceArguments, read: &ReadOptions) -> Result<RescueOptions> {
    Ok(RescueOptions {
        array: arguments.array.clone(),
        assemble: Options {
            ignore_events: arguments.ignore_events,
            force: arguments.force,
            ignore_checksums: arguments.ignore_checksums,
            partial: read.partial,
            order: None,
        },
        order: order(arguments)?,
        check: read.check,
        correct: read.correct,
    })
}

pub fn description(arguments: &SourceArguments, read: &ReadOptions) -> Result<Description> {
    let level = arguments.level.expect("only called with a level");
    let Some(raid_devices) = arguments.raid_devices else {
        bail!("--level {level}: --raid-devices N is needed, too: the number of slots");
    };
    let layout = arguments.layout.as_deref().map(|text| parse_layout(level, text)).transpose()?;
    let default_chunk = if level.has_chunks() { 1024 } else { 0 };
    // Places among the names count 'missing', those among the opened members do not.
    let opened = |place: usize| {
        let before = &arguments.members[..place];
        let index = before.iter().filter(|member| !is_missing(member)).count();
        (!is_missing(&arguments.members[place])).then_some(index)
    };
    let slots = match order(arguments)? {
        Some(places) => places.into_iter().map(|place| place.and_then(opened)).collect(),
        None => (0..arguments.members.len()).map(opened).collect(),
    };
    Ok(Description {
        spec: ExplicitSpec {
            level,
            layout,
            chunk_sectors: arguments.chunk.unwrap_or(default_chunk),
            raid_disks: raid_devices.into(),
            data_offset: arguments.data_offset.unwrap_or(0),
            used_sectors: arguments.size,
            members: Vec::new(),
        },
        slots,
        areas: Vec::new(),
        is_found: false,
        partial: read.partial,
        check: read.check,
        correct: read.correct,
    })
}

/// The member indexes of `--order`; `None` for a slot without a member.
fn order(arguments: &SourceArguments) -> Result<Option<Vec<Option<usize>>>> {
    if arguments.order.is_empty() {
        return Ok(None);
    }
    let count = arguments.members.len();
    let mut seen = Vec::new();
    let places = arguments.order.iter().map(|word| {
        if word == "missing" {
            return Ok(None);
        }
        let place = word.parse::<usize>().ok().filter(|&place| place < count);
        let Some(place) = place else {
            bail!("--order {word}: an index from 0 to {}, or missing", count - 1);
        };
        if seen.contains(&place) {
            bail!("--order {word}: the member is named twice");
        }
        seen.push(place);
        Ok(Some(place))
    });
    places.collect::<Result<Vec<_>>>().map(Some)
}
