//! Superblocks 0.90 and 1.x from outside: real ones, single flipped bits, and mutations.

mod corpus;
mod golden;
