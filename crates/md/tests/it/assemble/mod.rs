//! The assembly decision, on candidates that are made up: who is in, who is out, what may be done.

mod areas;
mod explicit;
mod hostile;
mod moments;
mod reading;
mod start_plan;
mod starting;
mod states;
mod support;
