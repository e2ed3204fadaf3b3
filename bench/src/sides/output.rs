//! The table on the terminal, and the same as CSV and JSON. Called by `cost` and `wire`.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::Plan;
use super::row::Row;
use crate::stats::{Spread, short};
use crate::{machine, sys};

const HEAD: [&str; 6] = ["what", "kernel TCP", "Shunt", "target", "reached", "met"];

/// One line while the measurements go on.
pub(crate) fn line(row: &Row) -> String {
    let cells = cells(row).join("  ");
    if row.note.is_empty() {
        cells
    } else {
        format!("{cells}\n    {}", row.note)
    }
}

/// The whole table, as Markdown.
pub(crate) fn print(rows: &[Row]) {
    let show = |cells: [String; 6]| println!("| {} |", cells.join(" | "));
    show(HEAD.map(String::from));
    show(HEAD.map(|_| "---".into()));
    rows.iter().map(cells).for_each(show);
}

fn cells(row: &Row) -> [String; 6] {
    let spread = |spread: Option<Spread>| {
        spread.map_or("–".into(), |spread| format!("{spread} {}", row.unit))
    };
    let (reached, met) = match (&row.failed, row.reached) {
        (Some(why), _) => (format!("FAILED: {why}"), "FAILED"),
        (None, reached) => {
            let met = row.met.map_or("–", |met| if met { "yes" } else { "NO" });
            (reached.map_or("–".into(), short), met)
        }
    };
    [
        format!("{}: {}", row.name, row.what),
        spread(row.kernel),
        spread(row.shunt),
        row.target.clone(),
        reached,
        met.into(),
    ]
}

/// Both files; the JSON one has every single value.
pub(crate) fn write(folder: &Path, name: &str, rows: &[Row], plan: &Plan) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut csv = csv::Writer::from_path(folder.join(format!("{name}.csv")))?;
    csv.write_record([
        "name",
        "unit",
        "kernel_median",
        "kernel_min",
        "kernel_max",
        "shunt_median",
        "shunt_min",
        "shunt_max",
        "target",
        "reached",
        "met",
        "note",
        "failed",
    ])?;
    for row in rows {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let of = |spread: Option<Spread>| {
            let parts: [fn(Spread) -> f64; 3] = [|s| s.median, |s| s.min, |s| s.max];
            parts.map(|part| number(spread.map(part)))
        };
        let head = [row.name.clone(), row.unit.into()];
        let tail = [
            row.target.clone(),
            number(row.reached),
            row.met.map_or(String::new(), |met| met.to_string()),
            row.note.clone(),
            row.failed.clone().unwrap_or_default(),
        ];
        let cells = head.into_iter().chain(of(row.kernel)).chain(of(row.shunt));
        csv.write_record(cells.chain(tail))?;
    }
    csv.flush()?;
    let all = json!({
        "machine": {"cores": sys::cores(), "cpu": machine::cpu(), "kernel": machine::kernel()},
        "repetitions": plan.reps, "quick": plan.quick, "rows": rows,
    });
    fs::write(
        folder.join(format!("{name}.json")),
        serde_json::to_string_pretty(&all)? + "\n",
    )?;
    println!(
        "\nwrote {0}/{name}.csv and {0}/{name}.json",
        folder.display()
    );
    Ok(())
}

/// A missed target is a result; a failed run is not.
pub(crate) fn none_failed<T>(rows: &[T], has_failed: impl Fn(&T) -> bool) -> anyhow::Result<()> {
    let failed = rows.iter().filter(|row| has_failed(row)).count();
    anyhow::ensure!(
        failed == 0,
        "{failed} of {} measurements failed",
        rows.len()
    );
    Ok(())
}
