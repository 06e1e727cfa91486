//! Charts are drawn, nothing is wrong on the console, and a picture is kept under `target/ci`.
//!
//! The page has no script of its own. The test opens a copy with a script at its end, which
//! measures what was drawn and leaves the answer in the document. The copy also has one error on
//! the console and one chart without size: a browser, or a test, that does not see these would see
//! nothing at all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const PROBE: &str = r#"
<svg id="canary" viewBox="0 0 1 1" style="width: 0; height: 0"><rect width="1" height="1"/></svg>
<script>
console.error("canary: the console is read");
const box = one => { const r = one.getBoundingClientRect(); return [r.width, r.height]; };
const charts = [...document.querySelectorAll("svg")];
const drawn = charts.map(chart => ({
  id: chart.id, size: box(chart), title: chart.querySelector("title")?.textContent ?? "",
  marks: [...chart.querySelectorAll("rect, circle, polyline, line")]
    .filter(mark => box(mark).some(length => length > 0)).length,
}));
const broad = document.documentElement.scrollWidth > document.documentElement.clientWidth;
const out = document.createElement("script");
out.type = "application/json"; out.id = "answer";
out.textContent = JSON.stringify({ drawn, broad });
document.body.append(out);
</script>
"#;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("raidlab-pages-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn raidlab(words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let output = command.args(words).stdin(Stdio::null()).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {stderr}");
}

/// A browser by its usual names.
pub fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let starts = |name: &&str| {
        // runs: chromium, chromium-browser, google-chrome
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    names.into_iter().find(starts)
}

/// Runs it on a page; what it printed, and what it said.
fn open(browser: &str, scratch: &Path, page: &Path, more: &[&str]) -> (String, String) {
    let profile = format!("--user-data-dir={}", scratch.join("profile").display());
    let mut command = Command::new(browser); // runs: chromium
    // Without a sandbox: it reads one file of ours, and CI runs as root.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--enable-logging=stderr", "--v=0", "--window-size=1400,900", &profile]);
    command.args(more).arg(format!("file://{}", page.display())).stdin(Stdio::null());
    let output = command.output().expect("the browser starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{more:?}: {err}");
    (out, err)
}

/// Several disks and chunks, so that every kind of chart is there; series and a finding as a
/// watcher adds them.
fn record(path: &Path) {
    let file = format!("--json={}", path.to_str().expect("UTF-8"));
    let words = "bench --members mem --size 4M --level single,raid0,raid5 --disks 3,4 --chunk \
                 64K,256K --seconds 0.02 --runs 3 --warm-up 0 --workload seq-read,rand-write";
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.push(&file);
    raidlab(&words);
    let text = std::fs::read_to_string(path).expect("a record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    let steps: Vec<f64> = (0..50).map(f64::from).collect();
    let member =
        |name: u32| json!({"name": name.to_string(), "read_mb_per_s": steps, "busy": steps});
    record["cells"][2]["series"] = json!({"step_s": 0.1, "members": [member(0), member(1)]});
    record["cells"][2]["findings"] = json!([{"name": "a-finding", "text": "Is <shown>.",
        "evidence": {"share": 0.5}, "command": "raidlab bench --depth 8"}]);
    record["cells"][0]["members"] = json!("<img src=x onerror=console.error('hole')>");
    std::fs::write(path, record.to_string()).expect("the record is written");
}

#[test]
fn the_report_is_drawn_and_the_console_is_silent() {
    let Some(browser) = browser() else {
        return println!("skipped: chromium is not installed; `scripts/setup --with-tests`");
    };
    let scratch = Scratch::new();
    let (data, page) = (scratch.0.join("record.json"), scratch.0.join("report.html"));
    record(&data);
    raidlab(&[
        "report",
        data.to_str().expect("UTF-8"),
        "--published",
        "scaling-4-disks",
        "--html",
        page.to_str().expect("UTF-8"),
    ]);
    let text = std::fs::read_to_string(&page).expect("a page");
    let copy = scratch.0.join("copy.html");
    std::fs::write(&copy, text.replace("</body>", &format!("{PROBE}</body>"))).expect("a copy");
    let (dom, stderr) = open(browser, &scratch.0, &copy, &["--dump-dom"]);

    let said: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(said.len(), 1, "one line on the console, ours: {said:?}");
    assert!(said[0].contains("canary: the console is read"), "{said:?}");

    let answer = dom.split("id=\"answer\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let answer: Value = serde_json::from_str(answer.expect("the probe's answer")).expect("JSON");
    assert_eq!(answer["broad"], false, "the page is broader than the window");
    let drawn = answer["drawn"].as_array().expect("a list");
    let (canary, charts): (Vec<&Value>, Vec<&Value>) =
        drawn.iter().partition(|chart| chart["id"] == "canary");
    assert_eq!(canary.len(), 1);
    assert_eq!(canary[0]["size"], json!([0, 0]), "a chart without size is seen as one");
    for chart in &charts {
        let length = |at: usize| chart["size"][at].as_f64().expect("a number");
        assert!(length(0) > 100.0 && length(1) > 20.0, "not drawn: {chart}");
        assert!(chart["marks"].as_u64().expect("a number") > 1, "nothing in it: {chart}");
    }
    // Speed, latency, CPU, members; by disks, by chunk; a map over time; published figures.
    let parts = ["by disks", "by chunk", "latency", "distribution of latency", "CPU", "traffic"];
    for part in parts.into_iter().chain(["Here and published"]) {
        let there = charts
            .iter()
            .any(|chart| chart["title"].as_str().is_some_and(|title| title.contains(part)));
        assert!(there, "no chart '{part}' among {}", charts.len());
    }

    let pictures = pictures();
    let picture = format!("--screenshot={}", pictures.join("report.png").display());
    open(browser, &scratch.0, &page, &[&picture]);
    let png = std::fs::read(pictures.join("report.png")).expect("a picture");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 20_000, "{} bytes", png.len());
}

/// `target/ci`, where CI keeps what it leaves behind.
pub fn pictures() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let pictures = target.join("ci");
    std::fs::create_dir_all(&pictures).expect("a directory");
    pictures
}
