//! A report as one HTML file with its plots drawn in SVG: nothing is loaded from anywhere, so it can be attached to a report
//! of a fault and opened years later.

use std::fmt::Write as _;

use super::verdict::{Plot, Report};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
td,th{border-bottom:1px solid #d0d7de;padding:.3rem .6rem;text-align:left;vertical-align:top}\
.v{font-weight:700;white-space:nowrap}.PASS{color:#116329}.FAIL{color:#a40e26}.WARN{color:#7d4e00}\
.SKIP,.INCONCLUSIVE{color:#57606a}pre{background:#f6f8fa;padding:.8rem;overflow:auto}svg{width:100%;height:auto}\
svg text{font:11px system-ui,sans-serif;fill:#57606a}";
const COLOURS: [&str; 4] = ["#0969da", "#bc4c00", "#1a7f37", "#8250df"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
/// Room for the labels of the axes.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 22.0;
/// Marks on an axis.
const N_TICKS: usize = 5;

/// The page.
pub fn page(report: &Report) -> String {
    let (command, verdict) = (escape(&report.command), report.verdict.word());
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{command}: {verdict}</title>\
         <style>{STYLE}</style></head><body><h1>{command}: <span class=\"{verdict}\">{verdict}</span></h1>"
    );
    let _ = write!(out, "<p>{}, {:.0} s. {}</p>", escape(&report.started), report.seconds, escape(&report.summary()));
    out.push_str("<h2>Checks</h2><table><tr><th>verdict<th>check<th>seen<th>seconds</tr>");
    for check in &report.checks {
        let (word, name, detail) = (check.status.word(), escape(&check.name), escape(&check.detail));
        let _ = write!(out, "<tr><td class=\"v {word}\">{word}<td>{name}<td>{detail}<td>{:.1}</tr>", check.seconds);
    }
    out.push_str("</table>");
    for plot in report.plots.iter().filter(|plot| plot.lines.iter().any(|(_, points)| !points.is_empty())) {
        let _ = write!(out, "<h2>{}</h2>{}", escape(&plot.title), svg(plot));
    }
    if !(report.not_proved.is_empty() && report.notes.is_empty()) {
        out.push_str("<h2>Not proved</h2><ul>");
        for line in report.not_proved.iter().chain(&report.notes) {
            let _ = write!(out, "<li>{}</li>", escape(line));
        }
        out.push_str("</ul>");
    }
    for (title, value) in [
        ("Server", &report.server),
        ("Machine", &report.rig),
        ("Settings", &report.settings),
        ("Figures", &report.measured),
    ] {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        let _ = write!(out, "<h2>{title}</h2><pre>{}</pre>", escape(&text));
    }
    out.push_str("</body></html>\n");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// From the least to the most value of an axis, with room where all are the same.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    match (low.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        (true, true) => (low, high),
        (true, false) => (low - 1.0, low + 1.0),
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => format!("{:.0}K", value / 1000.0),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

fn svg(plot: &Plot) -> String {
    let points = || plot.lines.iter().flat_map(|(_, points)| points);
    let (x_low, x_high) = range(points().map(|(x, _)| *x));
    let (y_low, y_high) = range(points().map(|(_, y)| *y));
    // Amounts begin at zero where that does not flatten the image.
    let y_low = if y_low > 0.0 && y_low < y_high / 2.0 { 0.0 } else { y_low };
    let x = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - 16.0);
    let y = |value: f64| HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - BOTTOM - TOP);
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for i in 0..=N_TICKS {
        let share = i as f64 / N_TICKS as f64;
        let (at_x, at_y) = (x_low + share * (x_high - x_low), y_low + share * (y_high - y_low));
        let (px, py) = (x(at_x), y(at_y));
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{py:.1}\" y2=\"{py:.1}\" stroke=\"#d0d7de\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{px:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            WIDTH - 16.0,
            LEFT - 6.0,
            py + 4.0,
            number(at_y),
            HEIGHT - BOTTOM + 16.0,
            number(at_x)
        );
    }
    let (middle, low) = (f64::midpoint(LEFT, WIDTH), HEIGHT - 6.0);
    let _ = write!(
        out,
        "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text><text x=\"4\" y=\"12\">{}</text>",
        escape(&plot.x),
        escape(&plot.y)
    );
    for (i, (name, points)) in plot.lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let finite = points.iter().filter(|(a, b)| a.is_finite() && b.is_finite());
        let places: Vec<(f64, f64)> = finite.map(|(a, b)| (x(*a), y(*b))).collect();
        let path: Vec<String> = places.iter().map(|(a, b)| format!("{a:.1},{b:.1}")).collect();
        let path = path.join(" ");
        let _ = write!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{path}\"/>");
        for (a, b) in places {
            let _ = write!(out, "<circle cx=\"{a:.1}\" cy=\"{b:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (label_x, label) = (WIDTH - 16.0, escape(name));
        let label_y = 12.0 + 13.0 * i as f64;
        let _ = write!(
            out,
            "<text x=\"{label_x}\" y=\"{label_y}\" text-anchor=\"end\" style=\"fill:{colour}\">{label}</text>"
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::verdict::Check;

    #[test]
    fn a_page_stands_alone_and_what_a_server_said_is_text() {
        let mut report = Report::new("check full", json!({"url": "x"}));
        report.checks.push(Check::fail("a", "<script>alert(1)</script>"));
        let lines = vec![("free".to_owned(), vec![(1000.0, 5.0), (2000.0, 3.0), (3000.0, f64::NAN)])];
        report.plots.push(Plot { title: "memory".into(), x: "tokens".into(), y: "MiB".into(), lines });
        report.plots.push(Plot { title: "nothing".into(), x: "x".into(), y: "y".into(), lines: vec![] });
        let page = page(&report);
        for part in ["&lt;script&gt;", "<svg", "<polyline", "class=\"v FAIL\"", "<h2>memory</h2>"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        for part in ["<script", "http", "src=", "href=", "url(", "@import", "NaN", "<h2>nothing"] {
            assert!(!page.contains(part), "{part} in {page}");
        }
        assert_eq!(page.matches("<circle").count(), 2);
    }

    #[test]
    fn equal_values_and_none_are_drawn_within_the_image() {
        for points in [vec![(1.0, 7.0)], vec![(1.0, 7.0), (2.0, 7.0)]] {
            let plot = Plot { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![("l".into(), points)] };
            assert!(!svg(&plot).contains("NaN") && !svg(&plot).contains("inf"), "{}", svg(&plot));
        }
    }
}
