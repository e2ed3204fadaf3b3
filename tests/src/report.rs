//! What the library reported: parsed lines of SHUNT_REPORT and the assertions about the path.
//!
//! A test that passes on silent fallback is a failed test: every test that expects shared memory
//! asks here, and every connection that stayed on kernel TCP must say why.

use crate::json::{self, Value};
use std::path::Path;

#[derive(Debug, Clone)]
pub struct Connection {
    pub local: String,
    pub peer: String,
    pub role: String,
    pub flow: Option<String>,
    pub transport: String,
    /// What an adapter did with what was sent by one.
    pub operation: Option<String>,
    pub sent: u64,
    pub received: u64,
    /// Bytes that went past the ring, both ways.
    pub zcopy: u64,
    pub demotions: Vec<String>,
    pub reason: Option<String>,
}

/// One line: one process.
#[derive(Debug, Clone)]
pub struct Process {
    pub program: String,
    pub pid: u64,
    pub shm: u64,
    pub tcp: u64,
    pub connections: Vec<Connection>,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub processes: Vec<Process>,
}

fn connection(v: &Value) -> Connection {
    for key in ["messages_sent", "messages_received", "no_credit"] {
        v.get(key).number();
    }
    Connection {
        flow: v.get("flow").optional_text().map(str::to_string),
        local: v.get("local").text().to_string(),
        peer: v.get("peer").text().to_string(),
        role: v.get("role").text().to_string(),
        transport: v.get("transport").text().to_string(),
        operation: v.get("operation").optional_text().map(str::to_string),
        sent: v.get("bytes_sent").number(),
        received: v.get("bytes_received").number(),
        zcopy: v.get("zcopy_bytes").number(),
        demotions: {
            let codes = v.get("demotions").list();
            codes.iter().map(|d| d.text().to_string()).collect()
        },
        reason: v.get("reason").optional_text().map(str::to_string),
    }
}

/// Whether this is the fast path of this run: shared memory, unless SHUNT_TEST_TRANSPORT names another. (A connection
/// that is to be moved by an adapter begins on iWARP, and may end before there is a ring for it.)
fn is_fast(transport: &str) -> bool {
    match crate::run::transport().as_deref() {
        None => transport == "shm",
        Some("verbs") => matches!(transport, "iwarp" | "verbs"),
        Some(named) => transport == named,
    }
}

fn process(line: &str) -> Result<Process, String> {
    let v = json::parse(line).map_err(|e| format!("{e} in report line {line:?}"))?;
    let totals = v.get("totals");
    let names = ["shm", "iwarp", "verbs"];
    let fast = names.map(|name| (is_fast(name), totals.get(name).number()));
    Ok(Process {
        program: v.get("program").text().to_string(),
        pid: v.get("pid").number(),
        shm: fast.iter().filter(|(is, _)| *is).map(|(_, n)| n).sum(),
        tcp: totals.get("tcp").number(),
        connections: v.get("connections").list().iter().map(connection).collect(),
    })
}

impl Report {
    /// Reads a report file; a missing one is an empty report.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let processes = text.lines().map(process).collect::<Result<_, _>>()?;
        Ok(Self { processes })
    }

    pub fn merged(reports: &[&Self]) -> Self {
        Self {
            processes: reports.iter().flat_map(|r| r.processes.clone()).collect(),
        }
    }

    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.processes.iter().flat_map(|p| &p.connections)
    }

    pub fn shm(&self) -> u64 {
        self.processes.iter().map(|p| p.shm).sum()
    }

    pub fn tcp(&self) -> u64 {
        self.processes.iter().map(|p| p.tcp).sum()
    }

    /// Bytes of connections over shared memory, both ways.
    pub fn shm_bytes(&self) -> u64 {
        self.connections()
            .filter(|c| is_fast(&c.transport))
            .map(|c| c.sent + c.received)
            .sum()
    }

    /// Bytes that went straight from one program's memory to another's; each end counts them.
    pub fn zcopy_bytes(&self) -> u64 {
        self.connections().map(|c| c.zcopy).sum()
    }

    /// Every attached connection sent by the scheme that SHUNT_TEST_FLOW asked for, if it named one.
    pub fn check_flow(&self) -> Result<(), String> {
        let asked = std::env::var("SHUNT_TEST_FLOW").unwrap_or_default();
        let known = ["credit", "packetized", "nic"];
        for c in self.connections().filter(|c| is_fast(&c.transport)) {
            let flow = c.flow.as_deref().unwrap_or("none");
            if !known.contains(&flow) || (known.contains(&asked.as_str()) && flow != asked) {
                return Err(format!("sent by {flow}, asked for {asked:?}: {c:?}"));
            }
            // (an adapter's way of credit is to send)
            let other = if asked == "credit" { "write" } else { "send" };
            if known.contains(&asked.as_str()) && c.operation.as_deref() == Some(other) {
                return Err(format!("an adapter's {other}, asked for {asked:?}: {c:?}"));
            }
        }
        Ok(())
    }

    /// At least this many connections, and this many bytes on them, went over shared memory.
    pub fn check_shm(&self, connections: u64, bytes: u64) -> Result<(), String> {
        self.check_flow()?;
        if self.shm() >= connections && self.shm_bytes() >= bytes {
            return self.check_reasons();
        }
        Err(format!(
            "{} connections and {} bytes over shared memory, expected {connections} and {bytes}: {}",
            self.shm(),
            self.shm_bytes(),
            self.summary()
        ))
    }

    /// At least this many connections, and each on kernel TCP, or back there, for one of these reasons.
    pub fn check_path(&self, connections: u64, reasons: &[&str]) -> Result<(), String> {
        self.check_reasons()?;
        if self.shm() + self.tcp() < connections {
            return Err(format!(
                "expected {connections} connections: {}",
                self.summary()
            ));
        }
        for c in self.connections() {
            let why = c.reason.as_deref().unwrap_or("");
            if (c.transport == "tcp" || !c.demotions.is_empty()) && !reasons.contains(&why) {
                return Err(format!("for none of {reasons:?}: {c:?}"));
            }
        }
        Ok(())
    }

    /// Whatever went back to the kernel did so for one of these reasons.
    pub fn check_demotions(&self, reasons: &[&str]) -> Result<(), String> {
        let known = |code: &String| reasons.contains(&code.as_str());
        match self.connections().find(|c| !c.demotions.iter().all(known)) {
            Some(c) => Err(format!("went back for none of {reasons:?}: {c:?}")),
            None => Ok(()),
        }
    }

    /// Nothing went over shared memory, and every connection says why.
    pub fn check_tcp(&self) -> Result<(), String> {
        if self.shm() == 0 {
            return self.check_reasons();
        }
        Err(format!(
            "shared memory with a plain peer: {}",
            self.summary()
        ))
    }

    /// Every connection on kernel TCP has a reason, and the totals agree with the list.
    pub fn check_reasons(&self) -> Result<(), String> {
        for c in self.connections() {
            let silent = c.reason.as_deref().unwrap_or("").is_empty();
            if c.transport == "tcp" && silent {
                return Err(format!("on kernel TCP without a reason: {c:?}"));
            }
        }
        for p in &self.processes {
            let listed = p
                .connections
                .iter()
                .filter(|c| is_fast(&c.transport))
                .count() as u64;
            if p.connections.len() < 1000 && listed != p.shm {
                return Err(format!(
                    "totals say {} on the fast path, the list {listed}: {p:?}",
                    p.shm
                ));
            }
        }
        Ok(())
    }

    /// One line for a message: a few of the connections, first those that a reason is given for.
    pub fn summary(&self) -> String {
        let with = |reason: bool| {
            self.connections()
                .filter(move |c| c.reason.is_some() == reason)
        };
        let mut words: Vec<_> = with(true)
            .chain(with(false))
            .take(8)
            .map(|c| {
                let why = c.reason.as_deref().unwrap_or("-");
                format!(
                    "[{} {} {}+{} bytes, {} past the ring, {why}]",
                    c.role, c.transport, c.sent, c.received, c.zcopy
                )
            })
            .collect();
        words.insert(0, format!("{} processes", self.processes.len()));
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"program":"x","pid":7,"totals":{"shm":1,"iwarp":0,"verbs":0,"tcp":1},
        "connections":[{"local":"a","peer":"b","role":"accept","transport":"shm","flow":"packetized",
        "bytes_sent":5,"bytes_received":6,"messages_sent":1,"messages_received":1,"operation":null,"zcopy_bytes":9,
        "no_credit":0,"demotions":[],"reason":null},{"local":"a","peer":"b","role":"connect",
        "transport":"tcp","flow":null,"bytes_sent":0,"bytes_received":0,"messages_sent":0,
        "messages_received":0,"operation":null,"zcopy_bytes":0,"no_credit":0,"demotions":[],"reason":WHY}]}"#;

    fn report(why: &str) -> Report {
        Report {
            processes: vec![process(&LINE.replace("WHY", why)).unwrap()],
        }
    }

    #[test]
    fn counts_what_went_where() {
        let r = report("\"plain_peer\"");
        assert!(r.check_shm(1, 11).is_ok());
        assert!(r.check_shm(2, 0).is_err());
        assert!(r.check_shm(1, 12).is_err());
        assert!(r.check_tcp().is_err());
        assert_eq!(r.zcopy_bytes(), 9);
    }

    #[test]
    fn wants_one_of_the_reasons() {
        let r = report("\"forked\"");
        assert!(r.check_path(2, &["exec", "forked"]).is_ok());
        assert!(r.check_path(3, &["forked"]).is_err());
        assert!(r.check_path(1, &["exec"]).is_err());
    }

    #[test]
    fn wants_a_reason() {
        assert!(report("null").check_shm(1, 0).is_err());
        assert!(report("\"\"").check_reasons().is_err());
    }
}
