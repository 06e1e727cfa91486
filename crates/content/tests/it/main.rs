//! Tests on images that the real tools make.

mod any_bytes;
mod identify;
mod images;
mod lvm;
mod predictions;
mod witnesses;
