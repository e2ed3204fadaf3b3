//! Datagrams of the port mapper from anybody: dropped, or messages that read the same once they are written again; neither who
//! asks nor who answers is disturbed.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use transport::port_mapper::answerer::{Answerer, Verdict};
use transport::port_mapper::asker::{Asker, Timing};
use transport::port_mapper::message::{Message, PmTime};

fuzz_target!(|datagrams: Vec<&[u8]>| {
    let host = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let service = SocketAddr::new(host(2), 80);
    let timing = Timing {
        first_us: 1000,
        requests: 3,
    };
    let (mut asker, _) = Asker::new(SocketAddr::new(host(1), 9), service, 0, timing, 0);
    let mut answerer = Answerer::new(1000);
    let mut answers = 0;
    for (now, bytes) in datagrams.into_iter().enumerate() {
        if let Ok(message) = Message::decode(bytes) {
            assert_eq!(Message::decode(message.encode().as_ref()), Ok(message));
        }
        answers += usize::from(asker.receive(host(2), bytes).answer.is_some());
        let accept = |_: &Message| Verdict::Accept {
            at: service,
            time: PmTime::ONCE,
        };
        if let Some(answer) = answerer.receive(now as u64, bytes, accept) {
            assert!(Message::decode(answer.as_ref()).is_ok());
        }
    }
    assert!(answers <= 1, "a question is answered once");
});
