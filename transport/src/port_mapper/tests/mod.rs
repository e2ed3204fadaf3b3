//! The port mapper protocol: the messages against bytes that others made and a reader of offsets; each side by
//! itself; and both together over a network that loses, doubles and reorders.

mod bytes;
mod questions;
mod sides;

use super::message::{Kind, Message};
use std::net::SocketAddr;

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(super) fn request(handle: u64) -> Message {
    Message {
        kind: Kind::Request,
        client: at("192.0.2.1:40000"),
        service: at("192.0.2.2:80"),
        handle,
        mapped: None,
    }
}

/// The bytes of the vectors, by name.
pub(super) fn vector(name: &str) -> Vec<u8> {
    let file = include_str!("../../../tests/vectors/port_mapper.txt");
    let mut lines = file.lines().filter_map(|l| l.split_once(' '));
    let (_, hex) = lines.find(|(n, _)| *n == name).unwrap();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|p| digit(p[0]) * 16 + digit(p[1])).collect()
}
