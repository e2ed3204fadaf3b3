//! The line of JSON that a process appends to `SHUNT_REPORT` when it ends. The keys are fixed (see
//! README, "What really happened"). Written by hand because it must also be possible in the middle of
//! `_exit`, with no serializer's machinery behind it.

use crate::reason::Reason;
use crate::record::{BY_SENDS, BY_WRITES, Record, Transport};
use flowctl::Scheme;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

/// Connections described one by one; the totals count all.
pub const DETAILED: usize = 1000;

/// The report of a process as it grows.
#[derive(Debug, Default)]
pub struct Report {
    totals: [u64; 4],
    listed: usize,
    connections: String,
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// One connection as a JSON object.
pub fn connection(out: &mut String, r: &Record) {
    let (local, peer) = r.names();
    let n = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    let byte = |a: &AtomicU8| a.load(Ordering::Relaxed);
    let role = if byte(&r.role) == 2 {
        "accept"
    } else {
        "connect"
    };
    // A closed connection is reported as what carried it best; a live one as what carries it now.
    let transport = Transport::from_number(byte(&r.best));
    let flow = Scheme::from_number(u64::from(byte(&r.flow)))
        .filter(|_| transport != Transport::Tcp)
        .map_or_else(|| "null".to_owned(), |s| format!("\"{}\"", s.word()));
    let operation = match byte(&r.operation) {
        BY_WRITES => "\"write\"",
        BY_SENDS => "\"send\"",
        _ => "null",
    };
    let _ = write!(
        out,
        "{{\"local\":\"{}\",\"peer\":\"{}\",\"role\":\"{role}\",\"transport\":\"{}\",\"flow\":{flow},\
         \"bytes_sent\":{},\"bytes_received\":{},\"messages_sent\":{},\"messages_received\":{},\
         \"zcopy_bytes\":{},\"operation\":{operation},\"no_credit\":{},\"demotions\":[",
        local.std(),
        peer.std(),
        transport.word(),
        n(&r.bytes_sent),
        n(&r.bytes_received),
        n(&r.messages_sent),
        n(&r.messages_received),
        n(&r.zcopy_bytes),
        n(&r.no_credit),
    );
    let codes = r.demotions.iter().map(byte).filter(|&d| d != 0);
    for (i, d) in codes.enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\"{}\"", Reason::from_number(d).code());
    }
    match Reason::from_number(byte(&r.reason)) {
        Reason::None => out.push_str("],\"reason\":null"),
        why => {
            let _ = write!(out, "],\"reason\":\"{}\"", why.code());
        }
    }
    match Reason::from_number(byte(&r.zcopy_reason)) {
        Reason::None => out.push_str(",\"zcopy_reason\":null"),
        why => {
            let _ = write!(out, ",\"zcopy_reason\":\"{}\"", why.code());
        }
    }
    let _ = write!(
        out,
        ",\"wire_messages\":{},\"events\":{},\"updates\":{},\"reserved\":{},\"peak_used\":{}}}",
        n(&r.wire_messages),
        n(&r.events),
        n(&r.updates),
        r.reserved.load(Ordering::Relaxed),
        r.peak_used.load(Ordering::Relaxed),
    );
}

impl Report {
    /// Counts a connection and, among the first, describes it.
    pub fn add(&mut self, r: &Record) {
        let best = usize::from(r.best.load(Ordering::Relaxed));
        if let Some(t) = self.totals.get_mut(best) {
            *t += 1;
        }
        if self.listed < DETAILED {
            if self.listed > 0 {
                self.connections.push(',');
            }
            connection(&mut self.connections, r);
        }
        self.listed += 1;
    }

    /// The line.
    #[must_use]
    pub fn line(&self, program: &str, pid: i32) -> String {
        let [tcp, shm, iwarp, verbs] = self.totals;
        let mut out = String::from("{\"program\":\"");
        escape(&mut out, program);
        let _ = writeln!(
            out,
            "\",\"pid\":{pid},\"totals\":{{\"shm\":{shm},\"iwarp\":{iwarp},\"verbs\":{verbs},\"tcp\":{tcp}}},\
             \"connections\":[{}]}}",
            self.connections
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_json_with_the_fixed_keys() {
        let r = Record::default();
        r.begin(5, 1, Reason::PeerPlain);
        let mut report = Report::default();
        report.add(&r);
        r.set_transport(Transport::Shm);
        r.flow.store(Scheme::Nic as u8, Ordering::Relaxed);
        r.set_demoted(Reason::Forked);
        report.add(&r);
        let line = report.line("a \"b\"\n", 7);
        assert!(line.starts_with("{\"program\":\"a \\\"b\\\"\\u000a\",\"pid\":7,"));
        assert!(line.contains("\"totals\":{\"shm\":1,\"iwarp\":0,\"verbs\":0,\"tcp\":1}"));
        assert!(line.contains("\"demotions\":[\"forked\"],\"reason\":\"forked\","));
        assert!(line.ends_with("]}\n"));
    }
}
