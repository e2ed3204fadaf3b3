//! The table on the terminal, out/compare.csv and out/compare.json. Called by `compare`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::verdict::{Figures, Judged, Row};
use crate::floor::Floor;
use crate::stats::{Spread, short};
use crate::{machine, sys};

const HEAD: [&str; 9] = [
    "measurement",
    "kernel TCP",
    "Shunt",
    "ratio",
    "targets: reached",
    "met",
    "to floor",
    "floor itself",
    "CPU ns each, kernel → Shunt",
];

/// One line while the measurements go on.
pub(super) fn line(row: &Row) -> String {
    cells(row).join("  ")
}

/// The whole table, as Markdown.
pub(super) fn print(rows: &[Row]) {
    let rows: Vec<[String; 9]> = rows.iter().map(cells).collect();
    let mut widths = HEAD.map(|word| word.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let show = |cells: &[String; 9]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        println!("| {} |", padded.collect::<Vec<_>>().join(" | "));
    };
    show(&HEAD.map(String::from));
    show(&widths.map(|width| "-".repeat(width)));
    rows.iter().for_each(show);
}

fn cells(row: &Row) -> [String; 9] {
    let figures = |side: &Option<Figures>| {
        side.as_ref().map_or("–".into(), |figures| {
            format!("{} {}", figures.value, row.unit)
        })
    };
    let (shunt, met) = match (&row.failed, &row.skipped) {
        (Some(why), _) => (format!("FAILED: {why}"), "FAILED"),
        (_, Some(why)) => (format!("skipped: {why}"), "–"),
        _ if row.shunt.is_none() || row.targets.is_empty() => (figures(&row.shunt), "–"),
        _ => (figures(&row.shunt), if row.met() { "yes" } else { "NO" }),
    };
    let cpu = |side: &Option<Figures>| {
        let both = |f: &Figures| format!("{}+{}", short(f.server_cpu_ns), short(f.client_cpu_ns));
        side.as_ref().filter(|f| f.client_cpu_ns > 0.0).map(both)
    };
    let cpu = [cpu(&row.kernel), cpu(&row.shunt)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" → ");
    [
        format!("{}: {}", row.name, row.what),
        figures(&row.kernel),
        shunt,
        times(row.ratio),
        row.targets
            .iter()
            .map(reached)
            .collect::<Vec<_>>()
            .join(", "),
        met.into(),
        times(row.to_floor),
        times(row.ceiling),
        if cpu.is_empty() {
            "–".into()
        } else {
            format!("{cpu} /{}", row.per)
        },
    ]
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("–".into(), |ratio| format!("{}×", short(ratio)))
}

fn reached(judged: &Judged) -> String {
    let verdict = if judged.met { "" } else { " NO" };
    format!("{}: {}{verdict}", judged.target, short(judged.reached))
}

/// Both files; the JSON one has every single value.
pub(super) fn write(
    folder: &Path,
    rows: &[Row],
    floor: &Floor,
    reps: usize,
    length: Duration,
) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut csv = String::from(
        "name,unit,kernel_median,kernel_min,kernel_max,shunt_median,shunt_min,shunt_max,ratio,to_floor,floor_ratio,met,\
         kernel_server_cpu_ns,kernel_client_cpu_ns,shunt_server_cpu_ns,shunt_client_cpu_ns,note\n",
    );
    for row in rows {
        csv.push_str(&csv_line(row));
    }
    fs::write(folder.join("compare.csv"), csv)?;
    let all = json!({
        "machine": {"cores": sys::cores(), "cpu": machine::cpu(), "kernel": machine::kernel()},
        "repetitions": reps, "seconds": length.as_secs_f64(), "floor": floor, "rows": rows,
    });
    fs::write(
        folder.join("compare.json"),
        serde_json::to_string_pretty(&all)? + "\n",
    )?;
    println!(
        "\nwrote {0}/compare.csv and {0}/compare.json",
        folder.display()
    );
    Ok(())
}

fn csv_line(row: &Row) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let spread = |side: &Option<Figures>| {
        let of = |pick: fn(Spread) -> f64| number(side.as_ref().map(|figures| pick(figures.value)));
        [of(|s| s.median), of(|s| s.min), of(|s| s.max)].join(",")
    };
    let cpu = |side: &Option<Figures>| {
        let [server, client] = [|f: &Figures| f.server_cpu_ns, |f: &Figures| f.client_cpu_ns]
            .map(|of| number(side.as_ref().map(of)));
        [server, client].join(",")
    };
    let met = if row.shunt.is_some() && !row.targets.is_empty() {
        row.met().to_string()
    } else {
        String::new()
    };
    let note = row.failed.as_ref().map(|why| format!("FAILED: {why}"));
    let note = note
        .or(row.skipped.as_ref().map(|why| format!("skipped: {why}")))
        .unwrap_or_default();
    [
        row.name.into(),
        row.unit.into(),
        spread(&row.kernel),
        spread(&row.shunt),
        number(row.ratio),
        number(row.to_floor),
        number(row.ceiling),
        met,
        cpu(&row.kernel),
        cpu(&row.shunt),
        format!("\"{}\"", note.replace('"', "'")),
    ]
    .join(",")
        + "\n"
}
