//! The figures as pictures: panels with lines, error bars and one legend, as SVG and as PNG. Called by each figure with
//! its data; knows nothing of what they mean. The font travels with the program, so a picture is the same everywhere.

mod axis;

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use epaint_default_fonts::UBUNTU_LIGHT;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::scheme::Scheme;
use crate::stats::Quartiles;
use axis::Range;
pub(super) use axis::Scale;

pub(super) struct Picture {
    pub title: String,
    /// What a reader must know to believe it: one line each, below the title.
    pub notes: Vec<String>,
    pub columns: usize,
    pub panels: Vec<Panel>,
}

pub(super) struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    /// How a mark is written.
    pub words: fn(f64) -> String,
}

pub(super) struct Line {
    pub of: Of,
    pub points: Vec<(f64, Quartiles)>,
}

/// Whose line it is.
#[derive(Clone, PartialEq)]
pub(super) enum Of {
    Scheme(Scheme),
    /// What a model predicts: thin and grey, without error bars.
    Model(&'static str),
}

impl Line {
    /// A line that a model draws.
    pub(super) fn model(name: &'static str, places: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let exact = |y| Quartiles {
            min: y,
            q1: y,
            median: y,
            q3: y,
            max: y,
        };
        Self {
            of: Of::Model(name),
            points: places.into_iter().map(|(x, y)| (x, exact(y))).collect(),
        }
    }
}

impl Of {
    fn name(&self) -> &'static str {
        match self {
            Self::Scheme(scheme) => scheme.title(),
            Self::Model(name) => name,
        }
    }

    /// Told apart by the colour-blind as well, and by where the points have their marks.
    fn color(&self) -> RGBColor {
        match self {
            Self::Scheme(Scheme::Credit) => RGBColor(213, 94, 0),
            Self::Scheme(Scheme::Packetized) => RGBColor(0, 114, 178),
            Self::Scheme(Scheme::Nic) => RGBColor(0, 158, 115),
            Self::Scheme(Scheme::Tcp) => RGBColor(90, 90, 90),
            Self::Model(_) => RGBColor(170, 170, 170),
        }
    }
}

const PANEL: (i32, i32) = (560, 380);
const MARGIN: i32 = 16;
/// Inside a panel, around the axes.
const LEFT: i32 = 62;
const RIGHT: i32 = 18;
const ABOVE: i32 = 52;
const BELOW: i32 = 50;
const LINE_HEIGHT: i32 = 20;
const GRID: RGBColor = RGBColor(226, 226, 226);

/// Writes `NAME.svg` and `NAME.png`.
pub(super) fn draw(folder: &Path, name: &str, picture: &Picture) -> anyhow::Result<()> {
    // It can only fail when it was registered before.
    let _ = register_font("sans-serif", FontStyle::Normal, UBUNTU_LIGHT);
    fs::create_dir_all(folder)?;
    let size = picture.size();
    let [svg, png] = ["svg", "png"].map(|kind| folder.join(format!("{name}.{kind}")));
    let failed = |error: String| anyhow!("cannot draw {name}: {error}");
    let area = SVGBackend::new(&svg, size).into_drawing_area();
    picture.draw(&area).map_err(|e| failed(e.to_string()))?;
    let area = BitMapBackend::new(&png, size).into_drawing_area();
    picture.draw(&area).map_err(|e| failed(e.to_string()))?;
    Ok(())
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn text(size: i32, across: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font())
        .pos(Pos::new(across, VPos::Center))
        .color(&BLACK)
}

impl Picture {
    /// Where the panels begin: below title, notes and legend.
    fn head(&self) -> i32 {
        MARGIN + 26 + LINE_HEIGHT * (self.notes.len() as i32 + 1) + 8
    }

    fn size(&self) -> (u32, u32) {
        let columns = self.columns.clamp(1, self.panels.len().max(1)) as i32;
        let rows = self.panels.len().div_ceil(columns as usize) as i32;
        let width = 2 * MARGIN + columns * PANEL.0;
        let height = self.head() + rows * PANEL.1 + MARGIN;
        (width as u32, height as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        area.fill(&WHITE)?;
        area.draw(&Text::new(
            self.title.clone(),
            (MARGIN, MARGIN + 8),
            text(20, HPos::Left),
        ))?;
        let mut y = MARGIN + 32;
        for note in &self.notes {
            area.draw(&Text::new(note.clone(), (MARGIN, y), text(14, HPos::Left)))?;
            y += LINE_HEIGHT;
        }
        self.legend(area, y)?;
        for (n, panel) in self.panels.iter().enumerate() {
            let (column, row) = (n % self.columns, n / self.columns);
            let corner = (
                MARGIN + column as i32 * PANEL.0,
                self.head() + row as i32 * PANEL.1,
            );
            Frame::of(panel, corner).draw(area)?;
        }
        area.present()
    }

    /// Every name once, whichever panel it is in.
    fn legend<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, y: i32) -> Drawn<B> {
        let mut names: Vec<&Of> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&&line.of) {
                names.push(&line.of);
            }
        }
        let mut x = MARGIN;
        for of in names {
            let stroke = of
                .color()
                .stroke_width(if matches!(of, Of::Model(_)) { 1 } else { 2 });
            area.draw(&PathElement::new([(x, y), (x + 24, y)], stroke))?;
            if matches!(of, Of::Scheme(_)) {
                area.draw(&Circle::new((x + 12, y), 3, of.color().filled()))?;
            }
            area.draw(&Text::new(of.name(), (x + 30, y), text(14, HPos::Left)))?;
            x += 56 + of.name().len() as i32 * 7;
        }
        Ok(())
    }
}

/// A panel with its place in the picture.
struct Frame<'a> {
    panel: &'a Panel,
    corner: (i32, i32),
    x: Range,
    y: Range,
}

impl<'a> Frame<'a> {
    fn of(panel: &'a Panel, corner: (i32, i32)) -> Self {
        let points = panel.lines.iter().flat_map(|line| &line.points);
        let heights = points.clone().flat_map(|(_, y)| [y.q1, y.median, y.q3]);
        Self {
            panel,
            corner,
            x: Range::holding(panel.x.scale, points.map(|(x, _)| *x)),
            y: Range::holding(panel.y.scale, heights),
        }
    }

    fn left(&self) -> i32 {
        self.corner.0 + LEFT
    }

    fn right(&self) -> i32 {
        self.corner.0 + PANEL.0 - RIGHT
    }

    fn top(&self) -> i32 {
        self.corner.1 + ABOVE
    }

    fn bottom(&self) -> i32 {
        self.corner.1 + PANEL.1 - BELOW
    }

    fn x(&self, value: f64) -> Option<i32> {
        let width = f64::from(self.right() - self.left());
        Some(self.left() + (self.x.place(value)? * width).round() as i32)
    }

    fn y(&self, value: f64) -> Option<i32> {
        let height = f64::from(self.bottom() - self.top());
        Some(self.bottom() - (self.y.place(value)? * height).round() as i32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let (x, y) = self.corner;
        area.draw(&Text::new(
            self.panel.title.clone(),
            (x + 8, y + 14),
            text(16, HPos::Left),
        ))?;
        area.draw(&Text::new(
            self.panel.y.label,
            (x + 8, y + 36),
            text(13, HPos::Left),
        ))?;
        self.axes(area)?;
        if self.panel.lines.iter().all(|line| line.points.is_empty()) {
            let middle = (
                (self.left() + self.right()) / 2,
                (self.top() + self.bottom()) / 2,
            );
            area.draw(&Text::new(
                "not reported by this version of the library",
                middle,
                text(14, HPos::Center),
            ))?;
        }
        // Models lie below what was measured.
        let (models, measured): (Vec<_>, Vec<_>) = self
            .panel
            .lines
            .iter()
            .partition(|line| matches!(line.of, Of::Model(_)));
        models
            .into_iter()
            .chain(measured)
            .try_for_each(|line| self.line(area, line))
    }

    fn axes<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let (left, right, top, bottom) = (self.left(), self.right(), self.top(), self.bottom());
        for tick in self.x.ticks(9) {
            let Some(x) = self.x(tick) else { continue };
            area.draw(&PathElement::new([(x, top), (x, bottom)], GRID))?;
            area.draw(&Text::new(
                (self.panel.x.words)(tick),
                (x, bottom + 12),
                text(13, HPos::Center),
            ))?;
        }
        for tick in self.y.ticks(8) {
            let Some(y) = self.y(tick) else { continue };
            area.draw(&PathElement::new([(left, y), (right, y)], GRID))?;
            area.draw(&Text::new(
                (self.panel.y.words)(tick),
                (left - 6, y),
                text(13, HPos::Right),
            ))?;
        }
        area.draw(&PathElement::new(
            [(left, top), (left, bottom), (right, bottom)],
            BLACK,
        ))?;
        let middle = (left + right) / 2;
        area.draw(&Text::new(
            self.panel.x.label,
            (middle, bottom + 32),
            text(13, HPos::Center),
        ))
    }

    fn line<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, line: &Line) -> Drawn<B> {
        let color = line.of.color();
        let at = |(x, y): &(f64, Quartiles)| Some((self.x(*x)?, self.y(y.median)?));
        let places: Vec<(i32, i32)> = line.points.iter().filter_map(at).collect();
        let measured = matches!(line.of, Of::Scheme(_));
        let stroke = color.stroke_width(if measured { 2 } else { 1 });
        area.draw(&PathElement::new(places.clone(), stroke))?;
        if !measured {
            return Ok(());
        }
        for (x, y) in &line.points {
            let (Some(x), Some(low), Some(high)) = (self.x(*x), self.y(y.q1), self.y(y.q3)) else {
                continue;
            };
            area.draw(&PathElement::new([(x, low), (x, high)], color))?;
            for end in [low, high] {
                area.draw(&PathElement::new([(x - 3, end), (x + 3, end)], color))?;
            }
        }
        for place in places {
            area.draw(&Circle::new(place, 3, color.filled()))?;
        }
        Ok(())
    }
}
