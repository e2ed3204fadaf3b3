//! One panel: its axes, its lines, and the marks and error bars on them. Called by `plot`.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::Range;
use super::{Drawn, Line, Mark, Of, PANEL, Panel, text};
use crate::stats::Quartiles;

/// Inside a panel, around the axes.
const LEFT: i32 = 62;
const RIGHT: i32 = 18;
const ABOVE: i32 = 52;
const BELOW: i32 = 50;
const GRID: RGBColor = RGBColor(226, 226, 226);
/// Half the width of a mark.
const MARK: i32 = 3;

/// A panel with its place in the picture.
pub(super) struct Frame<'a> {
    panel: &'a Panel,
    corner: (i32, i32),
    x: Range,
    y: Range,
}

impl<'a> Frame<'a> {
    pub(super) fn of(panel: &'a Panel, corner: (i32, i32)) -> Self {
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

    pub(super) fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
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
        let (models, measured): (Vec<_>, Vec<_>) =
            (self.panel.lines.iter()).partition(|line| line.of.is_model());
        for model in models {
            self.line(area, model, 0)?;
        }
        // Lines that coincide are told apart by a step aside, less than any distance that means something.
        let middle = measured.len() as i32 / 2;
        for (line, n) in measured.into_iter().zip(0..) {
            self.line(area, line, (n - middle) * 3)?;
        }
        Ok(())
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

    fn line<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        line: &Line,
        aside: i32,
    ) -> Drawn<B> {
        let across = |x: &f64| Some(self.x(*x)? + aside);
        let at = |(x, y): &(f64, Quartiles)| Some((across(x)?, self.y(y.median)?));
        let places: Vec<(i32, i32)> = line.points.iter().filter_map(at).collect();
        area.draw(&PathElement::new(places.clone(), line.of.stroke()))?;
        if line.of.is_model() {
            return Ok(());
        }
        for (x, y) in &line.points {
            let (Some(x), Some(low), Some(high)) = (across(x), self.y(y.q1), self.y(y.q3)) else {
                continue;
            };
            let color = line.of.color();
            area.draw(&PathElement::new([(x, low), (x, high)], color))?;
            for end in [low, high] {
                area.draw(&PathElement::new([(x - MARK, end), (x + MARK, end)], color))?;
            }
        }
        places
            .into_iter()
            .try_for_each(|place| mark(area, &line.of, place))
    }
}

/// The mark of a line's points; none for models.
pub(super) fn mark<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    of: &Of,
    (x, y): (i32, i32),
) -> Drawn<B> {
    let style = of.color().filled();
    match of.mark {
        Mark::Triangle => area.draw(&TriangleMarker::new((x, y), MARK + 2, style)),
        Mark::Circle => area.draw(&Circle::new((x, y), MARK, style)),
        Mark::Square => {
            let corners = [(x - MARK, y - MARK), (x + MARK, y + MARK)];
            area.draw(&Rectangle::new(corners, style))
        }
        Mark::Cross => area.draw(&Cross::new((x, y), MARK, of.color().stroke_width(2))),
        Mark::Ring => area.draw(&Circle::new((x, y), MARK + 1, of.color().stroke_width(2))),
        Mark::None => Ok(()),
    }
}
