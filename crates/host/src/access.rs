//! How a device is opened: what is permitted, and whether the page cache is used.

/// Permitted access to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// Options for opening a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Permitted access.
    pub access: Access,
    /// Bypass the page cache (`O_DIRECT`) if supported.
    pub direct: bool,
}
