//! Reshapes carried out here: to the end, back, and cut anywhere by a power failure.

mod arrays;
mod cuts;
mod golden;
mod lagging;
mod refused;
mod world;
