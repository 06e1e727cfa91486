//! GF(2^8) with the polynomial 0x11d, as plain as it gets.

/// The product, by shift and add.
pub fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

/// 2 to the power of an exponent.
pub fn power(exponent: u8) -> u8 {
    (0..exponent).fold(1, |value, _| mul(value, 2))
}

/// The inverse of a non-zero value, by search.
pub fn inverse(a: u8) -> u8 {
    (1..=255).find(|&b| mul(a, b) == 1).expect("only 0 has no inverse")
}

/// `into ^= factor * from`, byte by byte.
pub fn add_scaled(into: &mut [u8], factor: u8, from: &[u8]) {
    assert_eq!(into.len(), from.len());
    let table: Vec<u8> = (0..=255).map(|value| mul(factor, value)).collect();
    for (into, from) in into.iter_mut().zip(from) {
        *into ^= table[usize::from(*from)];
    }
}
