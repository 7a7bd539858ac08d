//! Line charts as SVG, like the bar charts of [`svg`](super::svg).

use super::svg::{STYLE, escape, number, text};

/// Lines over a horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What the axes count.
    pub axes: [String; 2],
    /// The lines, at most six.
    pub lines: Vec<PlotLine>,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct PlotLine {
    /// What it is.
    pub name: String,
    /// Something to compare with, and not what was measured.
    pub is_model: bool,
    /// Its points, from left to right.
    pub points: Vec<[f64; 2]>,
}

/// Lengths in the picture, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

/// Told apart also by people who do not see red or green (Okabe and Ito 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];

impl Plot {
    /// The picture.
    pub fn svg(&self) -> String {
        let most = [0, 1].map(|axis| {
            let points = self.lines.iter().flat_map(|line| &line.points);
            let most = points.map(|point| point[axis]).fold(0.0, f64::max);
            if most > 0.0 { most } else { 1.0 }
        });
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
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let [x, y] = place([share, share], [1.0, 1.0]);
            let bottom = HEIGHT - BOTTOM;
            axes += &text(x, bottom + 18.0, "middle", &number(share * most[0]));
            axes += &text(LEFT - 8.0, y + 4.0, "end", &number(share * most[1]));
            let right = WIDTH - RIGHT;
            axes += &format!(
                "<path d=\"M{LEFT:.1} {y:.1}H{right:.1}\" stroke=\"#777\" stroke-opacity=\"0.3\"/>\n"
            );
        }
        let [horizontal, vertical] = &self.axes;
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        axes += &text(middle, HEIGHT - 10.0, "middle", horizontal);
        axes + &text(16.0, TOP - 8.0, "start", vertical)
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

/// Where a point is in the picture.
fn place(point: [f64; 2], most: [f64; 2]) -> [f64; 2] {
    [
        LEFT + point[0] / most[0] * (WIDTH - LEFT - RIGHT),
        HEIGHT - BOTTOM - point[1] / most[1] * (HEIGHT - TOP - BOTTOM),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_where_the_axes_say() {
        let plot = Plot {
            title: "Rate & time".to_owned(),
            axes: ["s".to_owned(), "Gb/s".to_owned()],
            lines: vec![PlotLine {
                name: "auto".to_owned(),
                is_model: true,
                points: vec![[0.0, 0.0], [4.0, 10.0]],
            }],
        };
        let svg = plot.svg();
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
}
