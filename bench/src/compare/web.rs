//! The measurements made with servers that people run: redis, memcached, nginx. Called by `compare`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use super::case::Better::Higher;
use super::case::{Case, Ctx, Place, Reading, Target};
use super::own;
use crate::run::Program;
use crate::sys;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        redis("redis-p1", "redis GET, 50 clients", 1, 60_000.0).targets([Target::OverMedian(3.0)]),
        redis(
            "redis-p16",
            "redis GET, 50 clients, pipeline of 16",
            16,
            600_000.0,
        )
        .targets([Target::OverMedian(1.5)]),
        memcached().targets([Target::OverMedian(3.0)]),
        nginx("nginx", "nginx 1 KiB, keep-alive, 16 connections", 1)
            .targets([Target::OverMedian(2.0)]),
        Case {
            place: Place::Free,
            ..nginx("nginx-4", "nginx 1 KiB, 4 workers, unpinned", 4)
        }
        .targets([Target::OverMedian(2.0)]),
    ]
}

/// `per_second`: about what the kernel does, for redis-benchmark counts requests and knows no time.
fn redis(name: &'static str, what: &'static str, pipeline: u32, per_second: f64) -> Case {
    let requests = move |ctx: &Ctx| (per_second * ctx.length.as_secs_f64()).max(1e4).round();
    let client = move |ctx: &Ctx, _, port: u16| {
        let (port, pipeline, n) = (
            port.to_string(),
            pipeline.to_string(),
            requests(ctx).to_string(),
        );
        Program::new("redis-benchmark").args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-t",
            "get",
            "-c",
            "50",
            "-P",
            &pipeline,
            "-n",
            &n,
            "--csv",
        ])
    };
    let server = |ctx: &Ctx, _, port: u16| {
        let (port, folder) = (port.to_string(), ctx.scratch.0.display().to_string());
        Program::new("redis-server").args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &folder,
        ])
    };
    let mut case = Case::new(name, what, ("req/s", Higher), client, redis_rate)
        .server(server)
        .needs(["redis-server", "redis-benchmark"]);
    // How many requests there were is in the arguments only.
    case.parse = Box::new(move |ctx, out| {
        Ok(Reading {
            units: requests(ctx),
            ..redis_rate(out)?
        })
    });
    case.per = "request";
    case.ready = Some(Box::new(|_, port| set_redis_key(port)));
    case
}

fn redis_rate(out: &str) -> anyhow::Result<Reading> {
    let line = out
        .lines()
        .find(|line| line.starts_with("\"GET"))
        .context("no GET line")?;
    let rate = line
        .split(',')
        .nth(1)
        .map(|word| word.trim_matches('"'))
        .context("no rate")?;
    Ok(Reading {
        value: rate.parse()?,
        units: 0.0,
    })
}

/// redis-benchmark asks for this key, and without it would measure how fast redis says "none".
fn set_redis_key(port: u16) -> anyhow::Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.write_all(b"SET key:__rand_int__ abc\r\n")?;
    let mut answer = [0; 5];
    socket.read_exact(&mut answer)?;
    ensure!(&answer == b"+OK\r\n", "redis did not take the key");
    Ok(())
}

fn memcached() -> Case {
    let client = |ctx: &Ctx, _, port| {
        ctx.prog("mc-load", port).args([
            "--connections",
            "16",
            "--seconds",
            &ctx.length.as_secs_f64().to_string(),
        ])
    };
    let parse = |out: &str| {
        Ok(Reading {
            value: own::field(out, "per_second")?,
            units: own::field(out, "messages")?,
        })
    };
    let server = |_: &Ctx, _, port: u16| {
        let port = port.to_string();
        Program::new("memcached").args([
            "-u",
            "root",
            "-l",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "0",
            "-t",
            "1",
        ])
    };
    let case = Case::new(
        "memcached",
        "memcached GET, 16 connections",
        ("req/s", Higher),
        client,
        parse,
    )
    .server(server)
    .needs(["memcached"]);
    Case {
        per: "request",
        ..case
    }
}

fn nginx(name: &'static str, what: &'static str, workers: u32) -> Case {
    let client = |ctx: &Ctx, _, port| {
        let (length, url) = (
            format!("{}s", ctx.whole_seconds()),
            format!("http://127.0.0.1:{port}/1k"),
        );
        Program::new("wrk").args(["-t", "1", "-c", "16", "-d", &length, &url])
    };
    let server = |ctx: &Ctx, _, port| {
        let folder = nginx_folder(ctx, port).display().to_string();
        Program::new("nginx").args(["-p", &folder, "-c", "nginx.conf", "-e", "error.log"])
    };
    let mut case = Case::new(name, what, ("req/s", Higher), client, wrk_reading)
        .server(server)
        .needs(["nginx", "wrk"]);
    case.per = "request";
    case.before = Some(Box::new(move |ctx, port| {
        write_nginx_folder(ctx, port, workers)
    }));
    case
}

fn nginx_folder(ctx: &Ctx, port: u16) -> PathBuf {
    ctx.scratch.0.join(format!("nginx-{port}"))
}

fn write_nginx_folder(ctx: &Ctx, port: u16, workers: u32) -> anyhow::Result<()> {
    let folder = nginx_folder(ctx, port);
    fs::create_dir_all(&folder)?;
    // Workers run as whoever started them: the folder is theirs to read, and the library wants one user.
    let user = if sys::is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; worker_processes {workers}; pid nginx.pid; {user}
         events {{ worker_connections 256; }}
         http {{
             access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
             uwsgi_temp_path uwsgi; scgi_temp_path scgi;
             server {{ listen 127.0.0.1:{port}; root .; }}
         }}"
    );
    fs::write(folder.join("nginx.conf"), config)?;
    fs::write(folder.join("1k"), "x".repeat(1024))?;
    Ok(())
}

/// Requests per second; anything but clean answers is a failure.
fn wrk_reading(out: &str) -> anyhow::Result<Reading> {
    let bad = out
        .lines()
        .find(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
    ensure!(bad.is_none(), "{}", bad.unwrap_or_default().trim());
    let rate = out
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .context("no rate")?;
    let requests = out
        .lines()
        .find(|line| line.contains(" requests in "))
        .context("no count")?;
    let count = requests.split_whitespace().next().context("no count")?;
    Ok(Reading {
        value: rate.trim().parse()?,
        units: count.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_output() {
        let good = "  12345 requests in 1.00s, 15MB read\nRequests/sec:  12300.5\n";
        let reading = wrk_reading(good).unwrap();
        assert_eq!((reading.value, reading.units), (12300.5, 12345.0));
        assert!(wrk_reading(&format!("{good}  Non-2xx or 3xx responses: 3\n")).is_err());
    }
}
