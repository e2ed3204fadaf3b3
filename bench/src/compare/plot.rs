//! docs/img/compare.svg and .png: how many times better than kernel TCP each measurement is, with its targets.
//! Called by `compare`. The font travels with the program, so a picture is the same on every machine.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::verdict::Row;
use crate::stats::short;

const WIDTH: u32 = 1000;
const BAR: i32 = 26;
const TOP: i32 = 64;
const BOTTOM: i32 = 34;
/// Where the bars begin and end; the names stand to the left, the ratios to the right.
const LEFT: i32 = 330;
const RIGHT: i32 = 920;

const MET: RGBColor = RGBColor(46, 125, 80);
const MISSED: RGBColor = RGBColor(198, 90, 50);
const FREE: RGBColor = RGBColor(95, 115, 145);
const GRID: RGBColor = RGBColor(220, 220, 220);

/// Draws both files; nothing where no row has a ratio.
pub(super) fn draw(folder: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let bars: Vec<(&Row, f64)> = rows
        .iter()
        .filter_map(|row| Some((row, row.ratio?)))
        .collect();
    if bars.is_empty() {
        println!("no ratio to plot");
        return Ok(());
    }
    // It can only fail when it was registered before.
    let _ = register_font(
        "sans-serif",
        FontStyle::Normal,
        epaint_default_fonts::UBUNTU_LIGHT,
    );
    fs::create_dir_all(folder)?;
    let size = (WIDTH, (TOP + BOTTOM + BAR * bars.len() as i32) as u32);
    let (svg, png) = (folder.join("compare.svg"), folder.join("compare.png"));
    picture(&SVGBackend::new(&svg, size).into_drawing_area(), &bars)?;
    picture(&BitMapBackend::new(&png, size).into_drawing_area(), &bars)?;
    println!("wrote {} and {}", svg.display(), png.display());
    Ok(())
}

/// A ratio's place on the logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn holding(bars: &[(&Row, f64)]) -> Self {
        let marks = bars
            .iter()
            .flat_map(|(row, _)| row.targets.iter().filter_map(|judged| judged.mark));
        let all: Vec<f64> = bars.iter().map(|bar| bar.1).chain(marks).collect();
        let low = all.iter().copied().fold(0.5, f64::min);
        let high = all.iter().copied().fold(10.0, f64::max);
        Self {
            low: low * 0.9,
            high: high * 1.2,
        }
    }

    fn x(&self, ratio: f64) -> i32 {
        let share = (ratio.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        LEFT + (f64::from(RIGHT - LEFT) * share).round() as i32
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let all = [
            0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
        ];
        all.into_iter()
            .filter(|tick| (self.low..=self.high).contains(tick))
    }
}

fn picture<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    bars: &[(&Row, f64)],
) -> anyhow::Result<()> {
    try_picture(area, bars).map_err(|error| anyhow!("cannot draw: {error}"))
}

fn try_picture<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    bars: &[(&Row, f64)],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let axis = Axis::holding(bars);
    let bottom = TOP + BAR * bars.len() as i32;
    let text = |size: i32, h: HPos| {
        TextStyle::from(("sans-serif", size).into_font())
            .pos(Pos::new(h, VPos::Center))
            .color(&BLACK)
    };
    area.fill(&WHITE)?;
    area.draw(&Text::new(
        "Shunt against kernel TCP: times better (medians, logarithmic)",
        (16, 20),
        text(19, HPos::Left),
    ))?;
    for (x, color, words) in [
        (16, MET, "targets met"),
        (130, MISSED, "a target missed"),
        (270, FREE, "no target"),
    ] {
        area.draw(&Rectangle::new([(x, 38), (x + 12, 50)], color.filled()))?;
        area.draw(&Text::new(words, (x + 18, 44), text(14, HPos::Left)))?;
    }
    area.draw(&PathElement::new(
        [(372, 37), (372, 51)],
        BLACK.stroke_width(2),
    ))?;
    area.draw(&Text::new("target", (380, 44), text(14, HPos::Left)))?;
    for tick in axis.ticks() {
        let style = if tick == 1.0 {
            BLACK.stroke_width(1)
        } else {
            GRID.stroke_width(1)
        };
        area.draw(&PathElement::new(
            [(axis.x(tick), TOP), (axis.x(tick), bottom)],
            style,
        ))?;
        area.draw(&Text::new(
            format!("{tick}×"),
            (axis.x(tick), bottom + 14),
            text(14, HPos::Center),
        ))?;
    }
    for ((row, ratio), n) in bars.iter().zip(0..) {
        let top = TOP + BAR * n;
        let middle = top + BAR / 2;
        let color = match (row.targets.is_empty(), row.met()) {
            (true, _) => FREE,
            (false, true) => MET,
            (false, false) => MISSED,
        };
        let ends = [axis.x(1.0), axis.x(*ratio)];
        let (left, right) = (ends[0].min(ends[1]), ends[0].max(ends[1]).max(ends[0] + 1));
        area.draw(&Text::new(
            row.what,
            (LEFT - 10, middle),
            text(14, HPos::Right),
        ))?;
        area.draw(&Rectangle::new(
            [(left, top + 5), (right, top + BAR - 5)],
            color.filled(),
        ))?;
        for mark in row.targets.iter().filter_map(|judged| judged.mark) {
            let x = axis.x(mark);
            area.draw(&PathElement::new(
                [(x, top + 2), (x, top + BAR - 2)],
                BLACK.stroke_width(2),
            ))?;
        }
        area.draw(&Text::new(
            format!("{}×", short(*ratio)),
            (RIGHT + 12, middle),
            text(14, HPos::Left),
        ))?;
    }
    area.present()
}
