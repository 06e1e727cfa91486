//! A browser that a test drives: Chromium's DevTools protocol over a pipe.
//!
//! ```text
//!   --remote-debugging-pipe: JSON texts that end with a zero byte, to descriptor 3, from 4
//!   the tab's session --> answers by number, events in between
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything in the browser may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// Events that were not looked at.
    events: VecDeque<Value>,
}

impl Browser {
    /// Starts it, with its profile in a directory that goes with the test.
    pub fn start(program: &str, profile: &Path) -> Browser {
        // A shell gives it the two descriptors; without a sandbox, because CI runs as root.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", script, program, "--headless", "--no-sandbox", "--disable-gpu"]);
        command.args(["--remote-debugging-pipe", "--hide-scrollbars", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child_ref = child.as_mut().expect("sh starts");
        let (to, from) = (child_ref.stdin.take(), child_ref.stdout.take());
        let (to, from) = (to.expect("piped"), BufReader::new(from.expect("piped")));
        let child = child.expect("it has started");
        let (session, events) = (None, VecDeque::new());
        let mut browser = Browser { child, to, from, session, last: 0, events };
        let tab = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let wanted = json!({"targetId": tab["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", wanted);
        browser.session = Some(attached["sessionId"].as_str().expect("a session").to_string());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method; its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = message.to_string();
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.write_all(&[0])).expect("sent");
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "{method}: no answer");
            let message = self.message();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn message(&mut self) -> Value {
        let mut text = Vec::new();
        self.from.read_until(0, &mut text).expect("the browser's pipe");
        assert_eq!(text.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The value of an expression; a promise is waited for.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params);
        let failed = &answer["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {failed}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true; how long that took.
    pub fn until(&mut self, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.eval(expression) != true {
            if begun.elapsed() > PATIENCE {
                let text = self.eval("document.body.innerText");
                panic!("{expression}: not within {PATIENCE:?}: {text}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.until("document.readyState === 'complete'");
    }

    /// Presses a key: `Tab`, `Enter`, `ArrowRight`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("{other}: unknown here"),
        };
        let mut down =
            json!({"type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        if key == "Enter" {
            down["type"] = json!("keyDown");
            down["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types a text.
    pub fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// A window of this size, `dark` or `light`.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str, motion: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Keeps a picture of the whole page.
    pub fn picture(&mut self, path: &Path) {
        let height = self.eval("document.documentElement.scrollHeight").as_u64().expect("pixels");
        let width = self.eval("document.documentElement.clientWidth").as_u64().expect("pixels");
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let params = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let shot = self.call("Page.captureScreenshot", params);
        let png = base64(shot["data"].as_str().expect("a picture"));
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5_000, "{} bytes", png.len());
        std::fs::write(path, png).expect("the picture is written");
    }

    /// What went to the console, errors of scripts among it, and to the log of the tab.
    pub fn console(&mut self) -> Vec<String> {
        // Whatever was sent before is there now.
        self.eval("0");
        let is_said = |event: &&Value| {
            let kinds = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
            event["method"].as_str().is_some_and(|method| kinds.contains(&method))
        };
        self.events.iter().filter(is_said).map(|event| event["params"].to_string()).collect()
    }

    /// Addresses that were requested.
    pub fn requested(&mut self) -> Vec<String> {
        self.eval("0");
        let sent = self.events.iter().filter(|it| it["method"] == "Network.requestWillBeSent");
        let url = |event: &Value| event["params"]["request"]["url"].as_str().map(str::to_string);
        sent.filter_map(url).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64, with or without padding.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for value in text.bytes().filter_map(digit) {
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
