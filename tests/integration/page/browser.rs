//! A real Chromium without a window, driven by its debugging protocol.
//!
//! The protocol runs over pipes (`--remote-debugging-pipe`): messages ended by a zero byte, Chromium
//! reads file descriptor 3 and writes 4. A shell turns our stdin and stdout into these, so no
//! WebSocket and no further library is needed. The browser ends with the test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// Errors of the page: console errors, exceptions, network requests.
    pub(crate) problems: Vec<String>,
    _profile: TempDir,
}

/// Chromium under any of its names.
pub(crate) fn installed() -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let all = std::env::split_paths(&dirs).flat_map(|dir| names.map(|name| dir.join(name)));
    all.into_iter().find(|path| path.is_file())
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"])
            // Tests run as root in containers, where the sandbox cannot; the page is our own.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser {
            child,
            input,
            messages,
            session: None,
            next: 1,
            problems: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    pub(crate) fn call(&mut self, method: &str, params: impl Into<Option<Value>>) -> Value {
        let params = params.into();
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(message.to_string().as_bytes()).unwrap();
        self.input.write_all(&[0]).unwrap();
        self.input.flush().unwrap();
        loop {
            let answer = self.receive(method);
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self, waiting_for: &str) -> Value {
        let message = self.messages.recv_timeout(TIMEOUT);
        let message = message.unwrap_or_else(|e| panic!("Chromium, {waiting_for}: {e}"));
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.problems.push(params["exceptionDetails"].to_string()),
            "Log.entryAdded" => self.problems.push(params["entry"].to_string()),
            "Runtime.consoleAPICalled" => self.problems.push(params["args"].to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file:") && !url.starts_with("data:") && url != "about:blank" {
                    self.problems.push(format!("a request to {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file as a screen of this size and theme would.
    pub(crate) fn open(&mut self, file: &Path, width: u32, theme: &str) {
        self.visit(&format!("file://{}", file.display()), width, theme);
    }

    pub(crate) fn visit(&mut self, url: &str, width: u32, theme: &str) {
        self.emulate(width, theme);
        self.call("Page.navigate", json!({ "url": url }));
        while self.receive("the page's load")["method"] != "Page.loadEventFired" {}
    }

    /// A screen of this size and theme.
    pub(crate) fn emulate(&mut self, width: u32, theme: &str) {
        let phone = width < 600;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone,
                    "screenWidth": width, "screenHeight": 900 }),
        );
        let feature = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": feature }));
    }

    /// The value of an expression; a promise is waited for.
    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    pub(crate) fn key(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            _ if key.chars().count() == 1 => key,
            _ => "",
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", up);
    }

    /// The whole page as a picture, base64; for people.
    pub(crate) fn picture(&mut self) -> String {
        let params = json!({ "captureBeyondViewport": true, "format": "png" });
        let size = self.call("Page.getLayoutMetrics", json!({}));
        let (w, h) = (&size["cssContentSize"]["width"], &size["cssContentSize"]["height"]);
        let mut params = params;
        params["clip"] = json!({ "x": 0, "y": 0, "width": w, "height": h, "scale": 1 });
        self.call("Page.captureScreenshot", params)["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
