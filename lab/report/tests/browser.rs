//! The page in headless Chromium: every chart is drawn with a real extent, nothing is logged, nothing is requested,
//! nothing is wider than a telephone; and the same with faults planted, so that the looking itself is looked at.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod fixture;

use std::io::Write;
use std::process::Command;
use std::sync::Once;

use fixture::fixture;
use lab_report::page;
use serde_json::Value;

/// Measures what was drawn, from inside, and leaves it in the document.
const PROBE: &str = r#"<script>
addEventListener('load', () => {
  const extent = element => { const box = element.getBoundingClientRect(); return [box.width, box.height]; };
  const charts = [...document.querySelectorAll('svg')].map(svg => {
    const frame = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll('rect.fill, polygon.fill, polyline, circle, path.line')];
    const inside = mark => {
      const box = mark.getBoundingClientRect(), stroke = 2;
      return box.width + box.height > 0.5 && box.left >= frame.left - stroke && box.right <= frame.right + stroke
        && box.top >= frame.top - stroke && box.bottom <= frame.bottom + stroke;
    };
    const texts = [...svg.querySelectorAll('text')];
    return { title: svg.getAttribute('aria-label'), width: frame.width, height: frame.height, marks: marks.length,
      drawn: marks.filter(inside).length, colours: new Set(marks.map(mark => getComputedStyle(mark).color)).size,
      texts: texts.length, outside: texts.filter(text => { const box = text.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1; }).map(text => text.textContent) };
  });
  const found = { charts, tables: [...document.querySelectorAll('table')].filter(table => extent(table)[0] > 50).length,
    page: document.documentElement.scrollWidth, window: innerWidth,
    background: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
    requests: performance.getEntriesByType('resource').map(entry => entry.name) };
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = 'PROBE' + btoa(unescape(encodeURIComponent(JSON.stringify(found)))) + 'EBORP';
  (parent === window ? document : parent.document).body.append(out);
});
</script></body>"#;

/// What the browser found, and what it logged about the page.
struct Found {
    probe: Value,
    console: Vec<String>,
}

/// The browser, or a line that says that there is none.
fn browser() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works);
    if found.is_none() {
        assert!(
            !std::env::var("TREFOIL_REQUIRE").unwrap_or_default().split(',').any(|part| part == "chromium"),
            "TREFOIL_REQUIRE asks for chromium, which is not installed"
        );
        // Once, and straight to the stream: the test harness swallows what a passing test prints.
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _ = writeln!(std::io::stderr(), "skipped: report in a browser, install chromium");
        });
    }
    found
}

/// A window is never narrower than this: a narrower page is put into a frame.
const LEAST_WINDOW: u32 = 500;

fn framed(html: &str, width: u32) -> String {
    if width >= LEAST_WINDOW {
        return html.to_owned();
    }
    let quoted = html.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!doctype html><body><iframe style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{quoted}\"></iframe></body>"
    )
}

fn look(browser: &str, html: &str, width: u32, dark: bool) -> Found {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    assert!(html.contains("</body>"));
    std::fs::write(&file, framed(&html.replace("</body>", PROBE), width)).unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        // Whatever asks for a name gets none, and the console says so.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--window-size={},1000", width.max(LEAST_WINDOW)))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let output = command.arg(format!("file://{}", file.display())).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let encoded = dom.rsplit_once("PROBE").and_then(|(_, rest)| rest.split_once("EBORP"));
    let encoded = encoded.unwrap_or_else(|| panic!("the page did not load: {log}")).0;
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(String::from).collect();
    Found { probe: serde_json::from_slice(&from_base64(encoded)).unwrap(), console }
}

fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|letter| LETTERS.iter().position(|known| *known == letter));
    let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for digit in digits {
        (bits, held) = (bits << 6 | digit as u32, held + 6);
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// What is wrong with a page, in words.
fn faults(found: &Found) -> Vec<String> {
    let mut faults: Vec<String> = found.console.iter().map(|line| format!("console: {line}")).collect();
    let probe = &found.probe;
    faults.extend(probe["requests"].as_array().unwrap().iter().map(|name| format!("requested: {name}")));
    if probe["page"].as_f64() > probe["window"].as_f64() {
        faults.push(format!("the page is {} wide in a window of {}", probe["page"], probe["window"]));
    }
    for chart in probe["charts"].as_array().unwrap() {
        let number = |key: &str| chart[key].as_f64().unwrap();
        if number("width") < 250.0 || number("height") < 40.0 {
            faults.push(format!("no extent: {chart}"));
        }
        if number("marks") < 1.0 || number("drawn") < number("marks") {
            faults.push(format!("marks that are not drawn, or outside: {chart}"));
        }
        if number("texts") < 2.0 || !chart["outside"].as_array().unwrap().is_empty() {
            faults.push(format!("text outside: {chart}"));
        }
    }
    faults
}

#[test]
fn charts_are_drawn_and_nothing_leaves_the_file() {
    let Some(browser) = browser() else { return };
    let html = page(&[fixture()]);
    let (charts, tables) = (html.matches("<svg").count(), html.matches("<table").count());
    let mut backgrounds = Vec::new();
    for (width, dark) in [(1200, false), (1200, true), (400, false)] {
        let found = look(browser, &html, width, dark);
        assert_eq!(faults(&found), Vec::<String>::new(), "{width} wide, dark {dark}");
        assert_eq!(found.probe["window"].as_u64(), Some(u64::from(width)));
        assert_eq!(found.probe["charts"].as_array().unwrap().len(), charts);
        assert_eq!(found.probe["tables"].as_u64(), Some(tables as u64));
        // Three targets, three colours.
        let of_three = |chart: &&Value| chart["colours"].as_u64() == Some(3);
        assert!(found.probe["charts"].as_array().unwrap().iter().filter(of_three).count() >= 9);
        backgrounds.push((found.probe["background"].clone(), found.probe["ink"].clone()));
    }
    assert_ne!(backgrounds[0], backgrounds[1], "dark is another scheme");
}

#[test]
fn planted_faults_are_seen() {
    let Some(browser) = browser() else { return };
    let html = page(&[fixture()]);
    for (fault, planted) in [
        ("console", html.replace("</body>", "<script>console.error('lost')</script></body>")),
        ("console", html.replace("</body>", "<script>nothing.at.all()</script></body>")),
        ("requested", html.replace("</body>", "<img src=\"http://example.invalid/a.png\"></body>")),
        ("not drawn", html.replacen("<rect class=\"fill c0\"", "<rect style=\"display:none\" class=\"fill c0\"", 1)),
        ("no extent", html.replace("svg { display: block;", "svg { display: none;")),
        ("is 3019 wide", html.replace("</body>", "<div style=\"width:3000px\">x</div></body>")),
    ] {
        assert_ne!(planted, html, "{fault}");
        let seen = faults(&look(browser, &planted, 1200, false));
        assert!(seen.iter().any(|seen| seen.contains(fault)), "{fault}: {seen:?}");
    }
}
