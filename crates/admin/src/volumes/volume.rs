//! What is known of arrays and the volumes on them.
//!
//! Invariant: names are unique among all volumes, and a volume that cannot be read says why.

use std::sync::Arc;

use content::Identified;
use md::ondisk::Uuid;
use thiserror::Error;

use super::view::{Layer, VolumeView};
use crate::rescue::{ReadableArray, RescueError, appended};

/// All arrays among members, and what lies on them.
pub struct Volumes {
    /// In the order of the assembly.
    pub arrays: Vec<ArrayBelow>,
    /// About members and volume groups: what is left out, and what is missing.
    pub notes: Vec<String>,
    pub(super) views: Arc<Vec<Option<ReadableArray>>>,
}

/// An array and its volumes.
#[derive(Default)]
pub struct ArrayBelow {
    /// The first part of the names of its volumes.
    pub name: String,
    /// `None` for one that was described.
    pub uuid: Option<Uuid>,
    /// md's number of the level.
    pub level: i32,
    /// Size in sectors, if there is a geometry.
    pub sectors: Option<u64>,
    /// Notes about its contents: degraded slots, members left out.
    pub notes: Vec<String>,
    /// Reasons why its contents may be wrong.
    pub doubts: Vec<String>,
    /// The redundancy is compared below this array sector; `None`: it is not compared.
    pub compares_below: Option<u64>,
    /// What redundancy that agrees does not show.
    pub unseen: Option<&'static str>,
    /// Why it cannot be read.
    pub refusal: Option<RescueError>,
    /// The array itself, its partitions, and the logical volumes that begin on it.
    pub volumes: Vec<Volume>,
}

/// What kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of an array.
    Whole,
    /// A partition, of an array or of a logical volume.
    Partition,
    /// A logical volume of LVM2.
    Logical,
}

impl Kind {
    /// In JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Whole => "whole",
            Kind::Partition => "partition",
            Kind::Logical => "lvm",
        }
    }
}

/// Whether a volume can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of it, as far as its arrays can be read.
    Readable,
    /// A part of it is missing.
    InPart(String),
    /// It is not read.
    No(String),
}

/// A volume.
#[derive(Clone)]
pub struct Volume {
    /// Its name: `md0`, `md0/p1`, `vg/lv`.
    pub name: String,
    /// What kind it is.
    pub kind: Kind,
    /// First sector on the array, if the volume is one run of it.
    pub offset: Option<u64>,
    /// Its size in sectors.
    pub sectors: u64,
    /// What is at its start.
    pub content: Option<Identified>,
    /// Whether it can be read.
    pub access: Access,
    /// What to know of it although it can be read.
    pub note: Option<String>,
    /// Reasons why its contents may be wrong, besides those of its arrays.
    pub doubts: Vec<String>,
    /// The logical volume that it is a part of: it is not for users.
    pub part_of: Option<String>,
    /// The arrays that it lies on, by index.
    pub on: Vec<usize>,
    pub(super) layer: Option<Layer>,
}

/// Why a volume is not read.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// There is none of that name.
    #[error("no such volume; there is {}{}", list(.there), appended(.unread))]
    NoSuch {
        /// The names of those that are there.
        there: Vec<String>,
        /// Why arrays cannot be read.
        unread: Vec<String>,
    },
    /// The array of that name cannot be read.
    #[error("{0}")]
    Array(RescueError),
    /// It cannot be read.
    #[error("{name}: {why}")]
    NotRead {
        /// The volume.
        name: String,
        /// The reason.
        why: String,
    },
    /// A part of it is missing, and was not to be left out.
    #[error("{name}: {why}")]
    InPart {
        /// The volume.
        name: String,
        /// Part that is missing.
        why: String,
    },
}

impl ArrayBelow {
    /// `name: why`, of one that cannot be read.
    pub fn why_unread(&self) -> Option<String> {
        let refusal = self.refusal.as_ref()?.to_string();
        // Most refusals begin with a name of the array.
        Some(format!("{} cannot be read: {refusal}", self.name))
    }
}

/// Names listed in an error.
const LISTED: usize = 20;

fn list(names: &[String]) -> String {
    match names.len() {
        0 => "none".into(),
        count if count > LISTED => {
            format!("{}, and {} more", names[..LISTED].join(", "), count - LISTED)
        }
        _ => names.join(", "),
    }
}

impl Volumes {
    /// All volumes, in the order in which they are listed.
    pub fn all(&self) -> impl Iterator<Item = &Volume> {
        self.arrays.iter().flat_map(|array| &array.volumes)
    }

    /// The volume of that name, and its contents; one of which a part is missing only with
    /// `partial`.
    ///
    /// # Errors
    /// There is none, or it is not read.
    pub fn open(&mut self, name: &str, partial: bool) -> Result<(Volume, VolumeView), VolumeError> {
        let is_on = |array: &&mut ArrayBelow| {
            let rest = name.strip_prefix(array.name.as_str());
            array.refusal.is_some() && rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        if let Some(error) = self.arrays.iter_mut().find(is_on).and_then(|it| it.refusal.take()) {
            return Err(VolumeError::Array(error));
        }
        let volume = self.all().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| VolumeError::NoSuch {
            there: self.all().map(|volume| volume.name.clone()).collect(),
            unread: self.arrays.iter().filter_map(ArrayBelow::why_unread).collect(),
        })?;
        let name = volume.name.clone();
        let layer = match (&volume.access, &volume.layer) {
            (Access::InPart(why), _) if !partial => {
                return Err(VolumeError::InPart { name, why: why.clone() });
            }
            (Access::No(why), _) => return Err(VolumeError::NotRead { name, why: why.clone() }),
            (_, None) => {
                return Err(VolumeError::NotRead { name, why: "it has no place".into() });
            }
            (_, Some(layer)) => layer.clone(),
        };
        Ok((volume.clone(), VolumeView { arrays: self.views.clone(), layer }))
    }
}
