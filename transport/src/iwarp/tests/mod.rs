//! Tests that concern more than one file: published and recorded octets, the three ways to frame against each other and against a
//! decoder written apart, and streams with each other and with a lawless peer.

mod framing;
mod lawless;
mod reference;
mod set_up;
mod siw;
mod streams;
mod vectors;
mod world;

use std::path::PathBuf;

/// The lines of a file of test vectors that say something.
fn lines(name: &str) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Octets that are all different from their neighbours.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}
