//! The program from outside: what it prints, writes and returns, and what it leaves behind.
//!
//! Nothing here asserts a speed, but that a bus slows paced members down.

mod findings;
mod kernels;
mod matrix;
mod misuse;
mod outputs;
mod signals;
mod support;
mod traffic;
