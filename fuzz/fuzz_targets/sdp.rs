//! SDP messages from anybody: refused, or messages that read the same once they are written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::sdp_wire::received::{Received, Sizes};
use transport::sdp_wire::{hello, hello_ib};

fuzz_target!(|bytes: &[u8]| {
    let sizes = Sizes {
        own: 8192,
        peer: 1024,
    };
    if let Ok((header, message)) = Received::new(bytes).check(&sizes) {
        let head = message.head(&header).unwrap();
        let again = [head.as_ref(), message.payload()].concat();
        assert_eq!(Received::new(&again).check(&sizes), Ok((header, message)));
    }
    if let Ok(hello) = hello::Hello::decode(bytes) {
        assert_eq!(hello::Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Ok(ack) = hello::HelloAck::decode(bytes) {
        assert_eq!(hello::HelloAck::decode(&ack.encode()), Ok(ack));
    }
    if let Ok(hello) = hello_ib::Hello::decode(bytes) {
        assert_eq!(hello_ib::Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Ok(ack) = hello_ib::HelloAck::decode(bytes) {
        assert_eq!(hello_ib::HelloAck::decode(&ack.encode()), Ok(ack));
    }
});
