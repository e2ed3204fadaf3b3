//! The figures as pictures: panels with lines, error bars and one legend, as SVG and as PNG. Called by each figure with
//! its data; knows nothing of what they mean. The font travels with the program, so a picture is the same everywhere.

mod axis;
mod frame;

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use epaint_default_fonts::UBUNTU_LIGHT;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::scheme::Scheme;
use super::table;
use crate::stats::Quartiles;
pub(super) use axis::Scale;
use frame::Frame;

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

impl Axis {
    pub(super) fn new(label: &'static str, scale: Scale, words: fn(f64) -> String) -> Self {
        Self {
            label,
            scale,
            words,
        }
    }

    /// What the sizes of messages are drawn on.
    pub(super) fn message_size() -> Self {
        Self::new("message size, bytes", Scale::Doublings, table::size)
    }
}

pub(super) struct Line {
    pub of: Of,
    pub points: Vec<(f64, Quartiles)>,
}

/// Whose line it is.
#[derive(Clone, PartialEq)]
pub(super) enum Of {
    Scheme(Scheme),
    /// What a model predicts: a thin line without error bars, the grey of which is given.
    Model(&'static str, u8),
}

impl Line {
    /// A line that a model draws.
    pub(super) fn model(
        name: &'static str,
        grey: u8,
        places: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let exact = |y| Quartiles {
            min: y,
            q1: y,
            median: y,
            q3: y,
            max: y,
        };
        Self {
            of: Of::Model(name, grey),
            points: places.into_iter().map(|(x, y)| (x, exact(y))).collect(),
        }
    }
}

impl Of {
    fn name(&self) -> &'static str {
        match self {
            Self::Scheme(scheme) => scheme.title(),
            Self::Model(name, _) => name,
        }
    }

    fn stroke(&self) -> ShapeStyle {
        self.color()
            .stroke_width(if matches!(self, Self::Model(..)) {
                1
            } else {
                2
            })
    }

    /// Told apart by the colour-blind as well; the marks differ besides.
    fn color(&self) -> RGBColor {
        match self {
            Self::Scheme(Scheme::Credit) => RGBColor(213, 94, 0),
            Self::Scheme(Scheme::Packetized) => RGBColor(0, 114, 178),
            Self::Scheme(Scheme::Nic) => RGBColor(0, 158, 115),
            Self::Scheme(Scheme::Tcp) => RGBColor(90, 90, 90),
            Self::Model(_, grey) => RGBColor(*grey, *grey, *grey),
        }
    }
}

const PANEL: (i32, i32) = (560, 380);
const MARGIN: i32 = 16;
const LINE_HEIGHT: i32 = 20;

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
            area.draw(&PathElement::new([(x, y), (x + 24, y)], of.stroke()))?;
            frame::mark(area, of, (x + 12, y))?;
            let name = Text::new(of.name(), (x + 30, y), text(14, HPos::Left));
            area.draw(&name)?;
            x += 56 + of.name().len() as i32 * 13 / 2;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_drawn_even_where_a_panel_is_empty() {
        let axis = |scale| Axis {
            label: "label",
            scale,
            words: crate::figures::table::tick,
        };
        let line = |scheme| Line {
            of: Of::Scheme(scheme),
            points: [(1.0, 1.0), (64.0, 1.1), (4096.0, 20.0)]
                .map(|(x, y)| (x, Quartiles::of([y * 0.8, y, y * 1.2]).unwrap()))
                .into(),
        };
        let panel = |scale, lines| Panel {
            title: "title".into(),
            x: axis(Scale::Doublings),
            y: axis(scale),
            lines,
        };
        let mut lines: Vec<Line> = Scheme::ALL.into_iter().map(line).collect();
        lines.push(Line::model("model", 150, [(1.0, 5.0), (4096.0, 5.0)]));
        let picture = Picture {
            title: "Title".into(),
            notes: vec!["note".into()],
            columns: 2,
            panels: vec![
                panel(Scale::Decades, lines),
                panel(Scale::Linear, Vec::new()),
            ],
        };
        let folder = std::env::temp_dir().join(format!("shunt-plot-{}", std::process::id()));
        draw(&folder, "test", &picture).unwrap();
        let [svg, png] =
            ["svg", "png"].map(|kind| fs::read(folder.join("test").with_extension(kind)));
        fs::remove_dir_all(&folder).unwrap();
        assert!(svg.unwrap().starts_with(b"<svg"));
        assert!(png.unwrap().starts_with(b"\x89PNG"));
    }
}
