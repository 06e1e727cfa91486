//! The UUID that mdadm shows for a volume of a format that has none of md's kind: the first sixteen
//! bytes of a SHA-1, word by word in the other byte order.

use sha1::{Digest, Sha1};

use crate::ondisk::Uuid;

/// Of these parts, one after the other.
pub(super) fn derived(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha1::new();
    parts.iter().for_each(|part| hash.update(part));
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    for (to, from) in bytes.chunks_exact_mut(4).zip(digest.chunks_exact(4)) {
        to.copy_from_slice(from);
        to.reverse();
    }
    Uuid(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `mdadm --examine` of mdadm 4.2 printed them for a container and its volume.
    #[test]
    fn as_mdadm_derives_it() {
        let family = 0x2bb7_e81d_u32.to_le_bytes();
        let signature = b"Intel Raid ISM Cfg Sig. ";
        let container = derived(&[signature, &family]);
        assert_eq!(container.to_string(), "181ab456:fb6c4461:053f55f4:ac68b983");
        let volume = derived(&[signature, &family, &[0; 4], b"126\0\0\0\0\0\0\0\0\0\0\0\0\0"]);
        assert_eq!(volume.to_string(), "dad74f00:f0bd60cd:313aac28:6e8cd0f2");
    }
}
