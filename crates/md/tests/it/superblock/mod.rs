//! Superblocks 0.90 and 1.x from outside: real ones, literal bytes, changed bytes, where they are
//! found, what is refused, and how they follow an array's state.

mod corpus;
mod detection;
mod flips;
mod golden;
mod literal;
mod refusals;
mod states;
