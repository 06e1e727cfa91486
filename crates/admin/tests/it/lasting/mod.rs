//! Persistent arrays: created, started, stopped, dropped as by a crash, started again.

mod bad_blocks;
mod cancelled;
mod devices_gone;
mod flawed;
mod life;
mod live;
mod readded;
mod replaced;
mod slow_metadata;
mod spares;
mod starts;
mod support;
