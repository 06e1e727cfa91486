//! Mapping of a nested array's sectors to its leaves.
//!
//! Invariant: each inner array offers its whole size as one member of the outer one, from sector 0;
//! there is no metadata in between (real nested md arrays lose a data offset per layer, which the
//! caller subtracts from the leaf sizes or adds to the sectors).
//!
//! Called by the laboratory and by tests; it allocates, and is not for the path of a request.

use super::expr::{ArrayExpr, Members};
use crate::geometry::{Copy, Geometry, GeometryError, GeometrySpec, Kind, RowRole};
use crate::layout::Layout;
use crate::units::{MemberIdx, Sector};
use std::fmt;

/// The composed mapping of an [`ArrayExpr`].
#[derive(Clone, Debug)]
pub struct NestedGeometry {
    geometry: Geometry,
    /// The members' mappings; empty if the members are leaves.
    inner: Vec<NestedGeometry>,
    first_leaf: usize,
    leaves: usize,
}

/// What a leaf's sector is to an array sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceRole {
    /// Holds the sector itself.
    Data,
    /// Holds parity that the sector is part of. In nested parity, the outermost one counts: inner
    /// data that carries an outer P is P, and so is the inner parity over it.
    P,
    /// The same for Q.
    Q,
}

/// A sector of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The leaf, counted in the order of the expression's text.
    pub leaf: usize,
    /// The sector in it.
    pub sector: Sector,
    /// Data, P or Q.
    pub role: PlaceRole,
}

/// Why an expression makes no nested array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NestedError {
    /// The number of leaf sizes is not the expression's number of leaves.
    Leaves {
        /// Leaves of the expression.
        expected: usize,
        /// Sizes given.
        given: usize,
    },
    /// One of the arrays is refused.
    Array {
        /// The array, as an expression.
        array: String,
        /// The geometry error.
        source: GeometryError,
    },
}

impl fmt::Display for NestedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NestedError::Leaves { expected, given } => {
                write!(f, "leaves: the array has {expected}, given {given}")
            }
            NestedError::Array { array, source } => write!(f, "{array}: {source}"),
        }
    }
}

impl std::error::Error for NestedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NestedError::Leaves { .. } => None,
            NestedError::Array { source, .. } => Some(source),
        }
    }
}

impl NestedGeometry {
    /// The mapping of `expr` over leaves of the given sizes, in the order of the text. Arrays that
    /// name no layout get [`Layout::default_for`]; those that name no chunk,
    /// `default_chunk_sectors`.
    ///
    /// # Errors
    /// The wrong number of leaves, or an array that [`Geometry::new`] refuses.
    pub fn new(
        expr: &ArrayExpr,
        default_chunk_sectors: u64,
        leaf_sectors: &[u64],
    ) -> Result<NestedGeometry, NestedError> {
        let (expected, given) = (expr.leaves(), leaf_sectors.len());
        if expected != given {
            return Err(NestedError::Leaves { expected, given });
        }
        NestedGeometry::over(expr, default_chunk_sectors, leaf_sectors, 0)
    }

    fn over(
        expr: &ArrayExpr,
        default_chunk_sectors: u64,
        leaf_sectors: &[u64],
        first_leaf: usize,
    ) -> Result<NestedGeometry, NestedError> {
        let mut inner = Vec::new();
        if let Members::Arrays(arrays) = &expr.members {
            let mut next = first_leaf;
            for array in arrays {
                inner.push(NestedGeometry::over(array, default_chunk_sectors, leaf_sectors, next)?);
                next += array.leaves();
            }
        }
        let leaves = expr.leaves();
        let member_sectors = if inner.is_empty() {
            leaf_sectors[first_leaf..first_leaf + leaves].to_vec()
        } else {
            inner.iter().map(NestedGeometry::array_sectors).collect()
        };
        let default_chunk_sectors = if expr.level.has_chunks() { default_chunk_sectors } else { 0 };
        let geometry = Geometry::new(&GeometrySpec {
            level: expr.level,
            layout: expr.layout.unwrap_or(Layout::default_for(expr.level)),
            chunk_sectors: expr.chunk.unwrap_or(default_chunk_sectors),
            member_sectors,
        })
        .map_err(|source| NestedError::Array { array: expr.to_string(), source })?;
        Ok(NestedGeometry { geometry, inner, first_leaf, leaves })
    }

    /// The outermost array.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The mappings of the members; empty if they are leaves.
    pub fn inner(&self) -> &[NestedGeometry] {
        &self.inner
    }

    /// Sectors that the outermost array offers.
    pub fn array_sectors(&self) -> u64 {
        self.geometry.array_sectors()
    }

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Sectors that a leaf's own array uses of it.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn leaf_used_sectors(&self, leaf: usize) -> u64 {
        match self.inner.iter().find(|inner| leaf < inner.first_leaf + inner.leaves) {
            Some(inner) => inner.leaf_used_sectors(leaf),
            None => {
                assert!(self.inner.is_empty(), "leaf {leaf} is outside of the array");
                self.geometry.member_used_sectors(MemberIdx((leaf - self.first_leaf) as u16))
            }
        }
    }

    /// Whether all data can be served with only the leaves that `present` says are there. An inner
    /// array that has not enough of its own fails as a whole, as a real one would: RAID 0+1 that
    /// loses a leaf of each side is lost, though every sector may still have a copy.
    pub fn enough(&self, present: &dyn Fn(usize) -> bool) -> bool {
        self.geometry.enough(|member| match self.inner.get(member.index()) {
            Some(inner) => inner.enough(present),
            None => present(self.first_leaf + member.index()),
        })
    }

    /// Every place that holds array sector `at`, and the parity places over it: for each array, the
    /// data first (in the order of [`crate::Mirrored::locate`]), then P, then Q.
    ///
    /// # Panics
    /// If `at` is not below the array's size.
    pub fn locate(&self, at: Sector) -> Vec<Place> {
        let mut places = Vec::new();
        self.locate_as(at, PlaceRole::Data, &mut places);
        places
    }

    fn locate_as(&self, at: Sector, role: PlaceRole, places: &mut Vec<Place>) {
        match self.geometry.kind() {
            Kind::Striped(striped) => {
                let extent = striped.locate(at);
                self.enter(extent.member, extent.sector, role, places);
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                mirrored.locate(at, &mut copies);
                for copy in copies {
                    self.enter(copy.member, copy.sector, role, places);
                }
            }
            Kind::Parity(parity) => {
                let pos = parity.locate(at);
                let row = parity.row(pos.stripe);
                let sector = parity.member_sector(pos.stripe, pos.offset);
                self.enter(row.data[usize::from(pos.index)], sector, role, places);
                for (member, parity) in [(Some(row.p), PlaceRole::P), (row.q, PlaceRole::Q)] {
                    let Some(member) = member else { continue };
                    debug_assert_ne!(row.role[member.index()], RowRole::Data(pos.index));
                    let outermost = if role == PlaceRole::Data { parity } else { role };
                    self.enter(member, sector, outermost, places);
                }
            }
        }
    }

    fn enter(&self, member: MemberIdx, sector: Sector, role: PlaceRole, places: &mut Vec<Place>) {
        match self.inner.get(member.index()) {
            Some(inner) => inner.locate_as(sector, role, places),
            None => {
                let leaf = self.first_leaf + member.index();
                places.push(Place { leaf, sector, role });
            }
        }
    }
}
