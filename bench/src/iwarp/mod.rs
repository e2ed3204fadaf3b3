//! `bench iwarp`: what framing costs the processor: figures 3.3 to 3.8 of chapter 3 of the SDP thesis, as far as they are about
//! copies, markers and sums. This file owns the command line and the order of events. `way` says what is compared, `lab`
//! measures it, `show` writes it down.
//!
//! Everything happens in memory, on one core. The thesis had adapters that did part of the work; here an adapter is a model:
//! what it would do is left out, and the name of its line says so. The ways take turns point by point, so only order and ratio
//! mean anything.

mod lab;
mod show;
mod way;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{machine, plot, sys, table};
use lab::{Lab, Memory, Sample};
use way::Way;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Repetitions of each point
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Milliseconds of one repetition of one point
    #[arg(long, default_value_t = 5.0)]
    ms: f64,
    /// Three short repetitions of few sizes: a look, not a result
    #[arg(long)]
    quick: bool,
    /// What TCP takes at a time, octets: it sets the size of the frames
    #[arg(long, default_value_t = 65_483)]
    emss: usize,
    /// Only messages of so many octets
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Where everything goes
    #[arg(long, default_value = "out/iwarp")]
    out: PathBuf,
}

/// What one repetition of one point gave.
struct Point {
    round: usize,
    way: Way,
    memory: Memory,
    size: usize,
    sample: Sample,
}

/// Everything that was measured.
struct Data {
    rounds: usize,
    sizes: Vec<usize>,
    points: Vec<Point>,
}

impl Data {
    fn memories(&self) -> impl Iterator<Item = Memory> {
        Memory::ALL.into_iter()
    }
}

/// A line of the CSV file.
#[derive(Serialize)]
struct Row {
    round: usize,
    way: String,
    markers: bool,
    crc: bool,
    memory: Memory,
    size: usize,
    send_ns: f64,
    receive_ns: f64,
    send_copies: f64,
    receive_copies: f64,
    entries: f64,
}

impl From<&Point> for Row {
    fn from(point: &Point) -> Self {
        Self {
            round: point.round,
            way: point.way.name(),
            markers: point.way.markers,
            crc: point.way.crc,
            memory: point.memory,
            size: point.size,
            send_ns: point.sample.send_ns,
            receive_ns: point.sample.receive_ns,
            send_copies: point.sample.send_copies,
            receive_copies: point.sample.receive_copies,
            entries: point.sample.entries,
        }
    }
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let sizes = match (&args.sizes[..], args.quick) {
        ([], false) => vec![
            1,
            64,
            256,
            1 << 10,
            4 << 10,
            16 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
        ],
        ([], true) => vec![64, 4 << 10, 64 << 10, 1 << 20],
        (some, _) => some.to_vec(),
    };
    anyhow::ensure!(
        sizes.iter().all(|size| (1..=8 << 20).contains(size)),
        "a message has 1 to {} octets",
        8 << 20
    );
    let rounds = if args.quick { 3 } else { args.rounds.max(1) };
    let (start, load) = (Instant::now(), machine::load());
    if load > 0.3 {
        println!("load average {load}: others use these cores; wait, or the figures show them too");
    }
    sys::Cores::one(sys::cores() - 1).bind()?;
    let data = measure(args, rounds, sizes)?;
    let made = format!(
        "Made by `bench iwarp`: {rounds} repetitions of {} ms, median; frames for an EMSS of {}; {}, Linux {}, load \
         average {load} before.",
        args.ms,
        args.emss,
        machine::cpu(),
        machine::kernel(),
    );
    let rows: Vec<Row> = data.points.iter().map(Row::from).collect();
    table::write_csv(&args.out, "iwarp-runs", &rows)?;
    for memory in data.memories() {
        let name = format!("iwarp-{memory:?}").to_lowercase();
        plot::draw(
            &args.out,
            &name,
            &show::picture(&data, memory, notes(rounds)),
        )?;
    }
    let text = format!("{}{}", show::tables(&data), show::verdict(&data));
    println!("{text}");
    fs::write(args.out.join("iwarp.md"), format!("{made}\n{text}"))?;
    println!(
        "{:.0} s; everything is in {}",
        start.elapsed().as_secs_f64(),
        args.out.display()
    );
    Ok(())
}

fn measure(args: &Args, rounds: usize, sizes: Vec<usize>) -> anyhow::Result<Data> {
    let limit = Duration::from_secs_f64(args.ms / 1e3);
    let mut lab = Lab::new(args.emss, sizes.iter().copied().max().unwrap_or(1));
    let mut points = Vec::new();
    for round in 0..rounds {
        for &size in &sizes {
            for memory in Memory::ALL {
                // Each way goes first as often as the others.
                for turn in 0..Way::ALL.len() {
                    let way = Way::ALL[(round + turn) % Way::ALL.len()];
                    let sample = lab.measure(way, memory, size, limit)?;
                    points.push(Point {
                        round,
                        way,
                        memory,
                        size,
                        sample,
                    });
                }
            }
        }
    }
    Ok(Data {
        rounds,
        sizes,
        points,
    })
}

fn notes(rounds: usize) -> Vec<String> {
    vec![
        format!("CPU time of copies, markers and sums alone: no TCP, no system call, no wire. Points: median of {rounds} runs, bars: quartiles."),
        "Bandwidth: a core a side and nothing else in the way. Adapters are models: what they would do is not counted.".into(),
        "Generic: 2 + 2 copies with markers, 1 + 1 without; integrated: 1 + 1. Figures 3.5 to 3.8: CRC off, as an adapter would make it.".into(),
    ]
}
