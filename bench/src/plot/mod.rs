//! The figures as pictures: panels with lines, error bars and one legend, as SVG and as PNG. Called by `figures` and
//! `zcopy` with their data; knows nothing of what they mean. The font travels with the program, so a picture is the same everywhere.

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

use crate::stats::Quartiles;
use crate::table;
pub(crate) use axis::Scale;
use frame::Frame;

pub(crate) struct Picture {
    pub title: String,
    /// What a reader must know to believe it: one line each, below the title.
    pub notes: Vec<String>,
    pub columns: usize,
    pub panels: Vec<Panel>,
}

pub(crate) struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    /// How a mark is written.
    pub words: fn(f64) -> String,
}

impl Axis {
    pub(crate) fn new(label: &'static str, scale: Scale, words: fn(f64) -> String) -> Self {
        Self {
            label,
            scale,
            words,
        }
    }

    /// What the sizes of messages are drawn on.
    pub(crate) fn message_size() -> Self {
        Self::new("message size, bytes", Scale::Doublings, table::size)
    }
}

pub(crate) struct Line {
    pub of: Of,
    pub points: Vec<(f64, Quartiles)>,
}

/// Whose line it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Of {
    pub name: &'static str,
    pub color: (u8, u8, u8),
    pub mark: Mark,
}

/// What stands at the points of a line: lines differ in this too, for those who cannot tell the colours apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    Triangle,
    Circle,
    Square,
    Cross,
    Ring,
    /// What a model or the bare machine gives: a thin line without marks and error bars.
    None,
}

impl Line {
    /// A line that a model draws.
    pub(crate) fn model(
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
            of: Of {
                name,
                color: (grey, grey, grey),
                mark: Mark::None,
            },
            points: places.into_iter().map(|(x, y)| (x, exact(y))).collect(),
        }
    }
}

impl Of {
    fn is_model(&self) -> bool {
        self.mark == Mark::None
    }

    fn stroke(&self) -> ShapeStyle {
        self.color()
            .stroke_width(if self.is_model() { 1 } else { 2 })
    }

    fn color(&self) -> RGBColor {
        let (red, green, blue) = self.color;
        RGBColor(red, green, blue)
    }
}

const PANEL: (i32, i32) = (560, 380);
const MARGIN: i32 = 16;
const LINE_HEIGHT: i32 = 20;

/// Writes `NAME.svg` and `NAME.png`.
pub(crate) fn draw(folder: &Path, name: &str, picture: &Picture) -> anyhow::Result<()> {
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
            let name = Text::new(of.name, (x + 30, y), text(14, HPos::Left));
            area.draw(&name)?;
            x += 56 + of.name.len() as i32 * 13 / 2;
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
            words: table::tick,
        };
        let line = |mark| Line {
            of: Of {
                name: "name",
                color: (200, 0, 0),
                mark,
            },
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
        let mut lines: Vec<Line> = [
            Mark::Triangle,
            Mark::Circle,
            Mark::Square,
            Mark::Cross,
            Mark::Ring,
        ]
        .map(line)
        .into();
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
