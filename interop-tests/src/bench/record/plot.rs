//! Line charts as SVG, like the bar charts of [`svg`](super::svg).

use serde::{Deserialize, Serialize};

use super::svg::{STYLE, escape, number, text};

/// Lines over a horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub horizontal: Axis,
    /// The unit of the vertical axis.
    pub vertical: String,
    /// The lines, at most six.
    pub lines: Vec<PlotLine>,
}

/// A horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The label.
    pub label: String,
    /// The tick labels of the positions 0, 1, 2 and so on; if empty, the axis is numeric.
    pub steps: Vec<String>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlotLine {
    /// The name in the legend.
    pub name: String,
    /// Whether it is a reference or model, which is drawn dashed.
    pub is_model: bool,
    /// The points, from left to right.
    pub points: Vec<[f64; 2]>,
}

/// Sizes in pixels.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

/// A palette for people with colour blindness (Okabe and Ito 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];

impl Axis {
    /// A numeric axis.
    pub fn numbers(label: &str) -> Self {
        Self::steps(label, [""; 0])
    }

    /// An axis with these tick labels.
    pub fn steps<S: Into<String>>(label: &str, steps: impl IntoIterator<Item = S>) -> Self {
        Self {
            label: label.to_owned(),
            steps: steps.into_iter().map(Into::into).collect(),
        }
    }

    /// Positions and texts of the ticks, for a maximum of `most`.
    fn labels(&self, most: f64) -> Vec<(f64, String)> {
        match self.steps.as_slice() {
            [] => (0..=4)
                .map(|step| f64::from(step) / 4.0 * most)
                .map(|place| (place, number(place)))
                .collect(),
            steps => (0..)
                .zip(steps)
                .map(|(place, name)| (f64::from(place), name.clone()))
                .collect(),
        }
    }
}

impl Plot {
    /// Draws it.
    pub fn svg(&self) -> String {
        let mut most = [0, 1].map(|axis| {
            let points = self.lines.iter().flat_map(|line| &line.points);
            points.map(|point| point[axis]).fold(0.0, f64::max)
        });
        most[0] = most[0].max(self.horizontal.steps.len() as f64 - 1.0);
        let most = most.map(|most| if most > 0.0 { most } else { 1.0 });
        let title = escape(&self.title);
        let mut body = text(16.0, 24.0, "start", &self.title);
        body = body.replacen("<text", "<text class=\"title\"", 1);
        body += &self.axes(most);
        for (number, line) in self.lines.iter().enumerate() {
            body += &line.draw(number, most);
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>{STYLE}</style>\n{body}</svg>\n"
        )
    }

    fn axes(&self, most: [f64; 2]) -> String {
        let mut axes = String::new();
        for (at, label) in self.horizontal.labels(most[0]) {
            let [x, bottom] = place([at, 0.0], most);
            axes += &text(x, bottom + 18.0, "middle", &label);
        }
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let [_, y] = place([0.0, share], [1.0, 1.0]);
            axes += &text(LEFT - 8.0, y + 4.0, "end", &number(share * most[1]));
            let right = WIDTH - RIGHT;
            axes += &format!(
                "<path d=\"M{LEFT:.1} {y:.1}H{right:.1}\" stroke=\"#777\" stroke-opacity=\"0.3\"/>\n"
            );
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        axes += &text(middle, HEIGHT - 10.0, "middle", &self.horizontal.label);
        axes + &text(16.0, TOP - 8.0, "start", &self.vertical)
    }
}

impl PlotLine {
    fn draw(&self, number: usize, most: [f64; 2]) -> String {
        let colour = COLOURS[number % COLOURS.len()];
        let dashes = if self.is_model {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let points = self.points.iter().map(|&point| {
            let [x, y] = place(point, most);
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let y = TOP + 14.0 + 20.0 * number as f64;
        let x = WIDTH - RIGHT + 16.0;
        let key = format!("{x:.1},{y:.1} {:.1},{y:.1}", x + 24.0);
        let line = |points: &str| {
            format!(
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\n"
            )
        };
        line(&points) + &line(&key) + &text(x + 32.0, y + 4.0, "start", &self.name)
    }
}

/// The position of a point in the picture.
fn place(point: [f64; 2], most: [f64; 2]) -> [f64; 2] {
    [
        LEFT + point[0] / most[0] * (WIDTH - LEFT - RIGHT),
        HEIGHT - BOTTOM - point[1] / most[1] * (HEIGHT - TOP - BOTTOM),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(horizontal: Axis) -> String {
        let plot = Plot {
            title: "Rate & time".to_owned(),
            horizontal,
            vertical: "Gb/s".to_owned(),
            lines: vec![PlotLine {
                name: "auto".to_owned(),
                is_model: true,
                points: vec![[0.0, 0.0], [4.0, 10.0]],
            }],
        };
        plot.svg()
    }

    #[test]
    fn points_have_the_scale_of_the_axes() {
        let svg = plot(Axis::numbers("s"));
        for words in [
            "Rate &amp; time",
            "points=\"70.0,350.0 570.0,50.0\"",
            "stroke-dasharray",
            ">10.0<",
            ">auto<",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }

    #[test]
    fn ticks_have_equal_distances() {
        let svg = plot(Axis::steps("message", ["a", "b", "c", "d", "e", "f"]));
        for words in [
            "<text x=\"70.0\" y=\"368.0\" text-anchor=\"middle\">a<",
            "<text x=\"570.0\" y=\"368.0\" text-anchor=\"middle\">f<",
            "points=\"70.0,350.0 470.0,50.0\"",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }
}
