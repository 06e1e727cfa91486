//! The assembly decision: the members of an array, and how it may be started.
//!
//! ```text
//!   candidates ──group──> arrays ──freshest, state──> members ──shape──> geometry
//!                                                           └── plan: read-write, read-only
//! ```
//!
//! Invariant: a pure function of the candidates and the options; nothing is chosen in silence:
//! every candidate has a state with a reason, every refusal a sentence to act on. Rules:
//! docs/format/assembly.md; where Linux md or mdadm would decide otherwise,
//! [`Array::other_verdicts`] says so.
//!
//! Called by `admin` (to run an array) and by the command line (to explain one).

mod agree;
mod areas;
mod candidate;
mod explicit;
mod member_state;
mod messages;
mod moments;
mod plan;
mod readable;
mod readdition;
mod repair;
mod shape;
mod start;
mod start_bitmap;
mod types;

pub use candidate::{Candidate, Source};
pub use explicit::{AS_GIVEN, Explicit, ExplicitError, ExplicitMember, ExplicitSpec, explicit};
pub use plan::data_starts;
pub use readable::Readable;
pub use readdition::Readdition;
pub use shape::{Shape, ShapeError};
pub use start::{StartDevice, StartMember, StartPlan, StartRebuild, StartRefusal, StartState};
pub use start_bitmap::{BitmapRefusal, StartBitmap};
pub use types::{
    Array, Found, Member, MemberState, Options, OtherVerdict, OutOfDate, Override, Plan, Recovery,
    Repairs, Replay, Resync, Software, Verdict,
};

/// Finds the arrays among the candidates and decides about each. Results refer to candidates by
/// their index in `candidates`.
pub fn assemble(candidates: &[Candidate], options: &Options) -> Found {
    let (groups, floating_spares) = member_state::group(candidates);
    let arrays = groups.iter().map(|group| plan::array(candidates, group, options)).collect();
    Found { arrays, floating_spares }
}
