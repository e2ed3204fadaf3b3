//! What every RDMA adapter has to do (`transport::verbs::Adapter`), between two processes: over the stand-in on this
//! machine (`tests/adapter.rs`), over Linux's software RoCE in virtual machines (`scripts/test-rdma`).
//!
//! The two talk over a TCP connection: which case comes next, the addresses of its queue pairs, and how it went.

pub mod cases;
mod side;

use cases::CASES;
use side::{Control, Side};
use std::net::{TcpListener, TcpStream};

/// Which end this is. The one that asks decides what is done, and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Asks,
    Serves,
}

/// How to cut the link between the two, and to mend it: commands of a shell.
#[derive(Clone, Debug)]
pub struct Link {
    pub cut: String,
    pub mend: String,
}

const END: u8 = u8::MAX;

/// Why a case has not been done that is for other adapters: no failure.
const NOT_THIS: &str = "not for this adapter";

/// Runs the cases whose names have this in them (or one of several parts, with `|` between), against a peer that serves at this address. Prints a line for each; how many
/// went well, and how many did not.
pub fn ask(address: &str, filter: &str, link: Option<&Link>) -> (usize, usize) {
    let mut control = match TcpStream::connect(address) {
        Ok(stream) => Control::new(stream),
        Err(why) => {
            println!("test the peer is there ... FAILED\n  {address}: {why}");
            return (0, 1);
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for (number, (name, case)) in CASES.iter().enumerate() {
        let cuts = std::ptr::fn_addr_eq(*case, cases::CUT);
        if !filter.split('|').any(|part| name.contains(part)) || (cuts && link.is_none()) {
            continue;
        }
        let number = u8::try_from(number).expect("few cases");
        let told = control.tell(&[number]);
        let own = told.and_then(|()| run(*case, &mut control, Role::Asks, link));
        let theirs = control.verdict().unwrap_or_else(Err);
        match both(own, theirs) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Err(why) if why == NOT_THIS => {}
            Err(why) => {
                failed += 1;
                println!("test {name} ... FAILED\n  {why}");
            }
        }
    }
    let _ = control.tell(&[END]);
    (passed, failed)
}

/// How it went for both: what either has to say helps to see what became of the other.
fn both(own: Result<(), String>, theirs: Result<(), String>) -> Result<(), String> {
    match (own, theirs) {
        (Err(own), Err(theirs)) if own != NOT_THIS => Err(format!("{own}; {theirs}")),
        (own, theirs) => own.and(theirs),
    }
}

/// Serves one peer. False if it has gone in the middle of something.
pub fn serve(listener: &TcpListener) -> bool {
    let mut control = Control::new(listener.accept().expect("no connection").0);
    loop {
        let Ok([number]) = control.hear() else {
            return false;
        };
        if number == END {
            return true;
        }
        let (name, case) = CASES[usize::from(number)];
        let own = run(case, &mut control, Role::Serves, None);
        if let Err(why) = own.as_ref()
            && why != NOT_THIS
        {
            println!("{name}: {why}");
        }
        if control.judge(&own).is_err() {
            return false;
        }
    }
}

fn run(
    case: cases::Case,
    control: &mut Control,
    role: Role,
    link: Option<&Link>,
) -> Result<(), String> {
    case(&mut Side::new(control, role, link)?)
}
