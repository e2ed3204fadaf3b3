//! One repetition of one measurement: servers up, clients run, servers down, report read. Called by `compare`.
//! Everything it starts has ended when it returns, and every wait is bounded.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::case::{Case, Ctx, Ends, Place, Reading};
use super::evidence;
use crate::run::{Child, Ended, Start, free_port, wait_listening};

/// The figures of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub reading: Reading,
    /// CPU time of servers and of clients, ns per unit.
    pub server_cpu_ns: f64,
    pub client_cpu_ns: f64,
}

/// Runs the measurement once, with the library on `ends`.
pub(crate) fn run(ctx: &Ctx, case: &Case, ends: Ends) -> anyhow::Result<Sample> {
    let files = Files::new(ctx)?;
    let (server_core, client_core) = match case.place {
        Place::Apart => (Some(0), Some(1)),
        Place::Together => (Some(0), Some(0)),
        Place::Free => (None, None),
    };
    let ports = (0..case.pairs)
        .map(|_| free_port())
        .collect::<anyhow::Result<Vec<_>>>()?;
    let start = |who: &str, n: usize, core, preload: bool, report: &'static str| {
        let report = files.0.join(report);
        let output = files.0.join(format!("{who}{n}.out"));
        move |program| {
            let lib = ctx.lib.as_deref().filter(|_| preload);
            Child::start(
                &program,
                Start {
                    core,
                    preload: lib.map(|lib| (lib, report.as_path())),
                    settings: None,
                    output,
                },
            )
        }
    };

    let mut servers = Vec::new();
    for (n, port) in ports.iter().enumerate() {
        case.before
            .as_ref()
            .map_or(Ok(()), |before| before(ctx, *port))?;
        if let Some(server) = &case.server {
            let child = start("server", n, server_core, ends.server, SERVER_REPORT)(server(
                ctx, ends, *port,
            ))?;
            wait_listening(*port, &child)?;
            servers.push(child);
        }
        case.ready
            .as_ref()
            .map_or(Ok(()), |ready| ready(ctx, *port))?;
    }

    let limit = ctx.length + Duration::from_secs(15);
    let mut clients = Vec::new();
    for (n, port) in ports.iter().enumerate() {
        clients.push(start("client", n, client_core, ends.client, CLIENT_REPORT)(
            (case.client)(ctx, ends, *port),
        )?);
    }
    let clients = clients
        .into_iter()
        .map(|c| c.finish(limit))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let grace = Duration::from_millis(if case.parse_server { 3000 } else { 100 });
    let servers = servers
        .into_iter()
        .map(|s| s.finish_or_terminate(grace))
        .collect::<anyhow::Result<Vec<_>>>()?;

    if ends.any() {
        evidence::check(case.carrier, &files.reports(case, ends))?;
    }
    sample(ctx, case, &servers, &clients)
}

fn sample(ctx: &Ctx, case: &Case, servers: &[Ended], clients: &[Ended]) -> anyhow::Result<Sample> {
    let mut total = Reading::default();
    for ended in if case.parse_server { servers } else { clients } {
        let reading = (case.parse)(ctx, &ended.output)
            .with_context(|| format!("output not understood: {}", ended.output))?;
        ensure!(
            reading.value.is_finite() && reading.value > 0.0,
            "nothing was measured"
        );
        total.value += reading.value;
        total.units += reading.units;
    }
    let cpu_ns = |ended: &[Ended]| match total.units {
        0.0 => 0.0,
        units => ended.iter().map(|one| one.cpu.as_nanos()).sum::<u128>() as f64 / units,
    };
    Ok(Sample {
        reading: total,
        server_cpu_ns: cpu_ns(servers),
        client_cpu_ns: cpu_ns(clients),
    })
}

const SERVER_REPORT: &str = "server.report";
const CLIENT_REPORT: &str = "client.report";

/// The folder of one repetition, removed with all that is in it.
struct Files(PathBuf);

impl Files {
    fn new(ctx: &Ctx) -> anyhow::Result<Self> {
        let path = ctx.scratch.0.join("run");
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The report files that the preloaded ends must have written.
    fn reports(&self, case: &Case, ends: Ends) -> Vec<PathBuf> {
        let server = (ends.server && case.server.is_some()).then_some(SERVER_REPORT);
        let client = ends.client.then_some(CLIENT_REPORT);
        server
            .into_iter()
            .chain(client)
            .map(|name| self.0.join(name))
            .collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
