//! Connect, one byte there and back, close; with `--bare` connect and close alone. Called by `prog::main`.
//! The server serves until it is told to terminate.

use std::io::{ErrorKind, Read, Write};

use serde_json::json;

use super::{Latencies, Length, cpu_ns_per};

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
    /// Close at once, without a byte
    #[arg(long)]
    bare: bool,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// Close at once, without a byte
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    length: Length,
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let listener = super::listen(args.port)?;
    loop {
        let (mut socket, _) = listener.accept()?;
        if args.bare {
            continue;
        }
        let mut byte = [0];
        // A client that goes away early is the client's affair.
        if matches!(socket.read(&mut byte), Ok(1)) {
            let _ = socket.write(&byte);
        }
    }
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let mut value = 0_u8;
    let connections = Latencies::measure(args.length, || {
        let mut socket = super::connect(args.port)?;
        if args.bare {
            return Ok(());
        }
        value = value.wrapping_add(1);
        let mut answer = [0];
        socket.write_all(&[value])?;
        socket.read_exact(&mut answer)?;
        if answer == [value] {
            Ok(())
        } else {
            Err(ErrorKind::InvalidData.into())
        }
    })?;
    super::print(&json!({
        "prog": "crr-client", "bare": args.bare, "messages": connections.count,
        "p50_ns": connections.p50, "p99_ns": connections.p99, "per_second": connections.per_second(),
        "cpu_ns_per_message": cpu_ns_per(connections.count),
    }));
    Ok(())
}
