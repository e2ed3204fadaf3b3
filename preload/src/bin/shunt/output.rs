//! How connections are printed: a table for people, and JSON with the keys of the report. What comes
//! from another process is not trusted with the terminal.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::reason::Reason;
use transport::record::{Record, Transport};
use transport::report;
use transport::sys::net::Endpoint;

/// A process with its open connections.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) connections: Vec<Record>,
}

/// Characters of a program's name in the table.
const NAME: usize = 32;
const COLUMNS: usize = 10;
const TITLES: [&str; COLUMNS] = [
    "PID",
    "PROGRAM",
    "FD",
    "ROLE",
    "LOCAL",
    "PEER",
    "TRANSPORT",
    "SENT",
    "RECEIVED",
    "REASON",
];
/// Columns of numbers, which stand at the right.
const NUMBERS: [bool; COLUMNS] = [
    true, false, true, false, false, false, false, true, true, false,
];

fn transport(r: &Record) -> Transport {
    Transport::from_number(r.transport.load(Ordering::Relaxed))
}

fn fd(r: &Record) -> i32 {
    r.fd.load(Ordering::Relaxed).cast_signed()
}

/// The table.
pub(crate) fn table(processes: &[Process]) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for p in processes {
        rows.extend(p.connections.iter().map(|r| row(p, r)));
    }
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), number) in row.iter().zip(widths).zip(NUMBERS) {
            let _ = match number {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn row(p: &Process, r: &Record) -> [String; COLUMNS] {
    let number = |n: &AtomicU64| n.load(Ordering::Relaxed).to_string();
    let (local, peer) = r.names();
    let carrier = transport(r);
    let reason = match carrier {
        Transport::Tcp => Reason::from_number(r.reason.load(Ordering::Relaxed)).text(),
        _ => "",
    };
    [
        p.pid.to_string(),
        tame(&p.program),
        fd(r).to_string(),
        if r.role.load(Ordering::Relaxed) == 2 {
            "accept"
        } else {
            "connect"
        }
        .to_owned(),
        address(&local),
        address(&peer),
        carrier.word().to_owned(),
        number(&r.bytes_sent),
        number(&r.bytes_received),
        reason.to_owned(),
    ]
}

/// A name that does nothing to the terminal.
pub(crate) fn tame(name: &str) -> String {
    name.chars()
        .take(NAME)
        .map(|c| {
            if c.is_control() || c.is_whitespace() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

fn address(e: &Endpoint) -> String {
    if e.port == 0 {
        "-".to_owned()
    } else {
        e.std().to_string()
    }
}

/// The JSON: an array with one process a line.
pub(crate) fn json(processes: &[Process]) -> String {
    let lines: Vec<String> = processes.iter().map(object).collect();
    if lines.is_empty() {
        "[]\n".to_owned()
    } else {
        format!("[\n{}\n]\n", lines.join(",\n"))
    }
}

fn object(p: &Process) -> String {
    let program = serde_json::Value::from(p.program.as_str());
    let total = |t: Transport| p.connections.iter().filter(|r| transport(r) == t).count();
    let mut out = format!("{{\"program\":{program},\"pid\":{},\"totals\":{{", p.pid);
    let all = [
        Transport::Shm,
        Transport::Iwarp,
        Transport::Verbs,
        Transport::Tcp,
    ];
    for (i, t) in all.into_iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\"{}\":{}", t.word(), total(t));
    }
    out.push_str("},\"connections\":[");
    for (i, r) in p.connections.iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        out.push_str(&connection(r));
    }
    out.push_str("]}");
    out
}

/// The object of the report with the descriptor in front.
fn connection(r: &Record) -> String {
    // The report tells what carried a connection best; here it is what carries it now.
    r.best.store(transport(r) as u8, Ordering::Relaxed);
    let mut text = String::new();
    report::connection(&mut text, r);
    let rest = text.strip_prefix('{').unwrap_or(&text);
    format!("{{\"fd\":{},{rest}", fd(r))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        let a: std::net::SocketAddrV4 = text.parse().unwrap();
        Endpoint {
            ip: a.ip().to_ipv6_mapped().octets(),
            port: a.port(),
        }
    }

    fn process() -> Process {
        let fast = Record::default();
        fast.begin(5, 1, Reason::Undecided);
        fast.set_transport(Transport::Shm);
        fast.set_names(&endpoint("127.0.0.1:41000"), &endpoint("127.0.0.1:80"));
        fast.bytes_sent.store(1234, Ordering::Relaxed);
        let demoted = Record::default();
        demoted.begin(6, 2, Reason::Undecided);
        demoted.set_transport(Transport::Shm);
        demoted.set_demoted(Reason::Forked);
        Process {
            pid: 77,
            program: "a \"b\"\x1b[2J".to_owned(),
            connections: vec![fast, demoted],
        }
    }

    #[test]
    fn the_table_says_what_carries_each_connection_and_why() {
        let table = table(&[process()]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        let words: Vec<_> = lines[1].split_whitespace().collect();
        let expected = "77 a?\"b\"?[2J 5 connect 127.0.0.1:41000 127.0.0.1:80 shm 1234 0";
        assert_eq!(words.join(" "), expected);
        assert!(lines[2].contains(" accept   -  "), "{table}");
        assert!(lines[2].ends_with(Reason::Forked.text()), "{table}");
        assert!(!table.contains('\x1b'));
    }

    #[test]
    fn the_json_has_the_keys_of_the_report_and_the_descriptor() {
        let text = json(&[
            process(),
            Process {
                pid: 8,
                program: "x".into(),
                connections: vec![],
            },
        ]);
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(v[0]["pid"], 77);
        assert_eq!(v[0]["program"], "a \"b\"\x1b[2J");
        assert_eq!(
            v[0]["totals"],
            serde_json::json!({"shm": 1, "iwarp": 0, "verbs": 0, "tcp": 1})
        );
        let (fast, demoted) = (&v[0]["connections"][0], &v[0]["connections"][1]);
        assert_eq!(
            (&fast["fd"], &fast["transport"], &fast["bytes_sent"]),
            (&5.into(), &"shm".into(), &1234.into())
        );
        assert_eq!(
            (&demoted["transport"], &demoted["reason"]),
            (&"tcp".into(), &"forked".into())
        );
        assert_eq!(demoted["demotions"], serde_json::json!(["forked"]));
        assert_eq!(v[1]["connections"], serde_json::json!([]));
        assert_eq!(text.lines().count(), 4);
        assert_eq!(json(&[]), "[]\n");
    }

    #[test]
    fn any_bytes_can_be_printed() {
        let odd = process();
        let r = &odd.connections[0];
        for byte in [&r.role, &r.transport, &r.best, &r.reason]
            .into_iter()
            .chain(&r.demotions)
        {
            byte.store(255, Ordering::Relaxed);
        }
        for word in r.local.iter().chain(&r.peer).chain([&r.fd, &r.reserved]) {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        for word in [&r.bytes_sent, &r.no_credit] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(table(std::slice::from_ref(&odd)).lines().count(), 3);
        let _: serde_json::Value = serde_json::from_str(&json(&[odd])).unwrap();
    }
}
