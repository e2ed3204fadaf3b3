//! One end of a software-iWARP conversation by itself, for tests against other implementations.
//!
//! `iwarp_peer connect|listen ADDRESS [OPTION]...` follows the script as the initiator or the responder, for one connection, and
//! ends with 0 if everything was as it should be.
//!
//! - `--no-crc`, `--markers`, `--revision-1`: what it asks for, instead of CRCs, no markers, and the enhanced set-up.
//! - `--rtr write|read|fpdu`: "ready to receive"; the responder then speaks first.
//! - `--depth N`: Reads at a time.
//! - `--mulpdu OCTETS`: the largest ULPDU to be sent.
//! - `--direct`: payloads are read straight to their place.
//! - `--offend NAME`, `--suffer NAME`: a violation instead of the script, this end's or the peer's.
//! - `--siw`: the peer is Linux's siw, some of whose errors are known.
//! - `--rejected`, `--refused`: the peer says no, or closes the connection, and that is right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use shunt_tests::iwarp::end::End;
use shunt_tests::iwarp::offence::Offence;
use shunt_tests::iwarp::script::Actor;
use shunt_tests::iwarp::setup::{Options, SetUp, set_up};
use transport::iwarp::mpa::setup::Role;
use transport::iwarp::mpa::{Rtr, RtrSet};

enum Task {
    Script,
    Offend(Offence),
    Suffer(Offence),
    Rejected,
    Refused,
}

fn main() {
    let mut words = std::env::args().skip(1);
    let role = match words.next().as_deref() {
        Some("connect") => Role::Initiator,
        Some("listen") => Role::Responder,
        _ => panic!("iwarp_peer connect|listen ADDRESS [OPTION]..."),
    };
    let address = words.next().expect("an address");
    let mut options = Options::new(role);
    let mut task = Task::Script;
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word.as_str() {
            "--no-crc" => options.crc = false,
            "--markers" => options.markers = true,
            "--revision-1" => options.enhanced = false,
            "--direct" => options.direct = true,
            "--siw" => options.siw = true,
            "--rtr" => options.rtr = RtrSet::only(rtr(&value())),
            "--depth" => options.depth = value().parse().expect("Reads"),
            "--mulpdu" => options.mulpdu = value().parse().expect("octets"),
            "--offend" => task = Task::Offend(offence(&value())),
            "--suffer" => task = Task::Suffer(offence(&value())),
            "--rejected" => task = Task::Rejected,
            "--refused" => task = Task::Refused,
            _ => panic!("what is {word}?"),
        }
    }
    play(&mut open(role, &address), &options, &task);
}

fn rtr(name: &str) -> Rtr {
    match name {
        "write" => Rtr::Write,
        "read" => Rtr::Read,
        "fpdu" => Rtr::Fpdu,
        _ => panic!("no way to be ready: {name}"),
    }
}

fn offence(name: &str) -> Offence {
    let known = Offence::ALL.into_iter().find(|known| known.name() == name);
    known.unwrap_or_else(|| panic!("no offence: {name}"))
}

/// Connects, also if the peer is not there yet, or waits for one connection.
fn open(role: Role, address: &str) -> TcpStream {
    if role == Role::Responder {
        let listener = TcpListener::bind(address).expect("an address to listen at");
        println!("listening");
        return listener.accept().unwrap().0;
    }
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(tcp) => return tcp,
            Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("{address}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn play(tcp: &mut TcpStream, options: &Options, task: &Task) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.unwrap().subsec_nanos();
    tcp.set_nodelay(true).unwrap();
    let (terms, seed) = match (set_up(tcp, options, seed), task) {
        (SetUp::Rejected, Task::Rejected) | (SetUp::Closed, Task::Refused) => return,
        (SetUp::Open(terms, seed), Task::Refused) => {
            // The responder has said what the initiator cannot go on with.
            let mut end = End::new(tcp.try_clone().unwrap(), options, &terms);
            println!("{:?}, {seed}", end.wait_for_end());
            return;
        }
        (SetUp::Open(terms, seed), _) => (terms, seed),
        (other, _) => panic!("no stream: {other:?}"),
    };
    println!("seed {seed}, {terms:?}");
    if options.siw && options.role == Role::Initiator {
        // siw's responder begins to listen for FPDUs shortly after its Reply has gone out, and does not look whether one is
        // there already (siw_accept); what follows would wake it, but we wait for its answer.
        std::thread::sleep(Duration::from_millis(100));
    }
    let end = End::new(tcp.try_clone().unwrap(), options, &terms);
    let first = if terms.rtr.is_some() {
        Role::Responder
    } else {
        Role::Initiator
    };
    let mut actor = Actor::hello(end, options, first, seed);
    match task {
        Task::Offend(offence) => println!("{:?}", offence.commit_and_hear(&mut actor)),
        Task::Suffer(offence) => {
            offence.suffer(&mut actor);
            let (layer, kind, code) = offence.violation().numbers();
            println!("terminate: layer {layer}, type {kind}, code {code}");
        }
        Task::Script => {
            actor.follow();
            println!("{} payloads read to their place", actor.end.bypassed);
        }
        Task::Rejected | Task::Refused => panic!("the peer agreed"),
    }
}
