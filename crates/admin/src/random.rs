//! Random numbers of the system.

use std::io;

use md::ondisk::Uuid;

/// A random UUID from the kernel.
///
/// # Errors
/// The system's error.
pub fn random_uuid() -> io::Result<Uuid> {
    let mut uuid = Uuid::default();
    match rustix::rand::getrandom(&mut uuid.0, rustix::rand::GetRandomFlags::empty())? {
        16 => Ok(uuid),
        _ => Err(io::Error::other("too few of them")),
    }
}
