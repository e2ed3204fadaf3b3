//! One of the two processes of the cases for RDMA adapters (`shunt_tests::adapter`).
//!
//! - `adapter_peer serve ADDRESS` serves one peer.
//! - `adapter_peer ask ADDRESS [FILTER] [CUT MEND]` runs the cases whose names have FILTER in them (parts, with `|` between). CUT and MEND are
//!   commands of a shell that cut and mend the link between the two; without them the cases that need it are left out.

use shunt_tests::adapter::{Link, ask, serve};
use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let well = match words[..] {
        ["serve", address] => {
            let listener = TcpListener::bind(address);
            let Ok(listener) = listener else {
                println!("{address}: {listener:?}");
                return ExitCode::FAILURE;
            };
            // For whoever chose port 0.
            println!("{:?}", listener.local_addr());
            serve(&listener)
        }
        ["ask", address, ref rest @ ..] => {
            let filter = rest.first().copied().unwrap_or_default();
            let link = match rest {
                [_, cut, mend] => Some(Link {
                    cut: (*cut).into(),
                    mend: (*mend).into(),
                }),
                _ => None,
            };
            let (passed, failed) = ask(address, filter, link.as_ref());
            let well = failed == 0;
            let word = if well { "ok" } else { "FAILED" };
            println!("test result: {word}. {passed} passed; {failed} failed");
            well
        }
        _ => {
            println!("adapter_peer serve ADDRESS | ask ADDRESS [FILTER] [CUT MEND]");
            false
        }
    };
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
