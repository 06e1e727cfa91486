//! The control socket: its answers are what `openapi.json` describes, and bad clients change
//! nothing.

#[path = "support/array.rs"]
mod support_array;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admin::serving::{Ended, Serving};
use array::Array;
use raidlab_export::control::api::{
    Add, Done, OfDevice, Replace, Scrub, ScrubAction, Set, Status, Stopped,
};
use raidlab_export::control::{
    Client, ClientError, ControlError, ControlServer, ManagedArray, openapi,
};
use serde_json::{Value, json};

use support_array::raid5;

fn array() -> Array {
    raid5(4 << 11, 128, 8)
}

struct Rig {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
    server: Option<ControlServer>,
}

impl Rig {
    fn new() -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("sub/array.sock");
        let names = (0..3).map(|at| format!("mem{at}")).collect();
        let serving = Serving::of(array(), "array".into(), names).expect("threads");
        let stop = Arc::new(AtomicBool::new(false));
        let managed = ManagedArray::new("array", Arc::new(serving), Vec::new(), stop.clone());
        let server = ControlServer::start(&socket, Arc::new(managed)).expect("it is served");
        Rig { socket, stop, _directory: directory, server: Some(server) }
    }

    fn client(&self) -> Client {
        Client::new(&self.socket).expect("a client")
    }

    /// What the server answers to raw bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("it connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(bytes).expect("it is sent");
        let mut answer = Vec::new();
        // A server that closes the connection early is an answer, too.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(&self, route: &str, body: &str) -> String {
        self.raw(
            format!(
                "POST {route} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        )
    }
}

/// Whether a value has the form that a schema describes: types, required and further properties,
/// values of an enumeration, references.
fn conforms(value: &Value, schema: &Value, document: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return conforms(value, target.ok_or(format!("no {reference}"))?, document);
    }
    if let Some(all) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let fits = all.iter().filter(|one| conforms(value, one, document).is_ok()).count();
        return if fits == 1 { Ok(()) } else { Err(format!("{value}: {fits} of {all:?} fit")) };
    }
    if let Some(fixed) = schema.get("const") {
        return if value == fixed { Ok(()) } else { Err(format!("{value} is not {fixed}")) };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        other => return Err(format!("type {other}")),
    };
    let is = |name: &&str| match *name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    if !types.iter().any(is) {
        return Err(format!("{value} is not one of {types:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|all| !all.contains(value)) {
        return Err(format!("{value} is none of {allowed:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(item, &schema["items"], document)?;
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("a name");
        if !object.contains_key(name) {
            return Err(format!("no {name}"));
        }
    }
    for (name, value) in object {
        let property = schema["properties"].get(name).ok_or(format!("{name} is not described"))?;
        conforms(value, property, document).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn schema<'a>(document: &'a Value, route: &str, method: &str, status: &str) -> &'a Value {
    let answer = &document["paths"][route][method]["responses"][status]["content"];
    &answer["application/json"]["schema"]
}

#[test]
fn answers_are_what_the_document_describes() {
    let mut rig = Rig::new();
    let client = rig.client();
    let served: Value = client.get("/openapi.json").expect("it is served");
    let document = openapi();
    assert_eq!(served, document);
    let fits = |value: &Value, route: &str, method: &str| {
        let schema = schema(&document, route, method, "200");
        conforms(value, schema, &document).unwrap_or_else(|error| panic!("{route}: {error}"));
    };
    let status = |expected: usize| {
        let status: Value = client.get("/status").expect("an array");
        fits(&status, "/status", "get");
        let status: Status = serde_json::from_value(status).expect("a status");
        assert_eq!(usize::from(status.degraded), expected);
        status
    };
    assert_eq!(status(0).state, "clean");
    let device = |device: &str| OfDevice { device: device.into() };
    let order = |route: &str, order: &Value| -> Value {
        let schema = &document["paths"][route]["post"]["requestBody"]["content"];
        let schema = &schema["application/json"]["schema"];
        conforms(order, schema, &document).unwrap_or_else(|error| panic!("{route}: {error}"));
        let done: Value =
            client.post(route, order).unwrap_or_else(|error| panic!("{route}: {error}"));
        fits(&done, route, "post");
        done
    };
    let of = |value| serde_json::to_value(value).expect("JSON");
    order("/scrub", &of(Scrub { action: ScrubAction::Check }));
    order(
        "/set",
        &serde_json::to_value(Set { foreground_share: Some(10.0), ..Set::default() })
            .expect("JSON"),
    );
    order("/fail", &serde_json::to_value(device("mem1")).expect("JSON"));
    let degraded = status(1);
    let states: Vec<&str> = degraded.members.iter().map(|it| it.state.as_str()).collect();
    assert_eq!(states, ["in_sync", "missing", "in_sync", "faulty"]);
    assert_eq!(degraded.pace.map(|pace| pace.foreground_share), Some(10.0));
    // Refusals have their reason, and the form of a problem.
    let refused = client.post::<Done>("/fail", &device("mem2")).expect_err("it is needed");
    assert!(refused.to_string().contains("not failed"), "{refused}");
    let refused = client.post::<Done>("/remove", &device("mem1")).expect_err("no metadata");
    assert!(refused.to_string().contains("no metadata"), "{refused}");
    let replace = Replace { device: "0".into(), ..Replace::default() };
    let refused = client.post::<Done>("/replace", &replace).expect_err("no spare");
    assert!(refused.to_string().contains("no spare"), "{refused}");
    let add = Add { device: "/x".into(), ..Add::default() };
    let refused = client.post::<Done>("/add", &add).expect_err("no metadata");
    assert!(refused.to_string().contains("no metadata"), "{refused}");
    for (route, body) in [
        ("/fail", "{\"device\": 1}"),
        ("/fail", "{\"device\": \"mem0\", \"more\": 1}"),
        ("/fail", "{"),
        ("/set", "{\"foreground_share\": 100}"),
        ("/nowhere", "{}"),
        ("/status", "{}"),
    ] {
        let answer = rig.post(route, body);
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: Value =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{route}: {answer}"));
        assert!(answer.starts_with("HTTP/1.1 4"), "{route}: {answer}");
        conforms(&body, &document["components"]["schemas"]["Problem"], &document).expect(route);
    }
    // Events: those that have happened, in order.
    let mut events = Vec::new();
    let event_schema = json!({"$ref": "#/components/schemas/Event"});
    client
        .events(0, |event| {
            let value = serde_json::to_value(&event).expect("JSON");
            conforms(&value, &event_schema, &document).expect("an event");
            events.push(event.event);
            events.last().is_some_and(|event| event != "DegradedArray")
        })
        .expect("events");
    assert_eq!(events.first().map(String::as_str), Some("NewArray"));
    assert!(events.contains(&"Fail".to_string()), "{events:?}");
    let metrics = rig.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(
        metrics.contains("raidlab_md_disks{device=\"array\",state=\"failed\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("raidlab_md_disks_required{device=\"array\"} 3\n"), "{metrics}");
    let routes = document["paths"].as_object().expect("paths").len();
    assert_eq!(routes, 11, "a route that no test calls");
    // The answer to the order to stop is how that has ended.
    let (stop, server) = (rig.stop.clone(), rig.server.take().expect("it runs"));
    let problem = Some("its members are gone".to_string());
    let report = Stopped { done: "ended".into(), clean: false, problem };
    let stopped = report.clone();
    let ends = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.end().report(stopped);
    });
    let answer: Value = client.post("/stop", &json!({})).expect("it stops");
    fits(&answer, "/stop", "post");
    assert_eq!(serde_json::from_value::<Stopped>(answer).expect("a report"), report);
    ends.join().expect("it ends");
    assert!(!rig.socket.exists());
}

#[test]
fn a_server_that_ends_without_a_report_is_not_called_stopped() {
    let mut rig = Rig::new();
    let (stop, server) = (rig.stop.clone(), rig.server.take().expect("it runs"));
    let ends = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(server);
    });
    let answer = rig.client().post::<Stopped>("/stop", &json!({})).expect_err("no report");
    assert!(answer.to_string().contains("without a report"), "{answer}");
    ends.join().expect("it ends");
}

#[test]
fn a_status_of_another_version_has_defaults_for_what_it_lacks() {
    let status: Status = serde_json::from_str(r#"{"name": "a", "level": "raid5", "more": 1}"#)
        .expect("fields may be missing, and unknown");
    assert_eq!((status.name.as_str(), status.notes.len(), status.degraded), ("a", 0, 0));
}

#[test]
fn idle_clients_do_not_keep_others_out() {
    let rig = Rig::new();
    let idle = |_| UnixStream::connect(&rig.socket).expect("it connects");
    let held: Vec<UnixStream> = (0..100).map(idle).collect();
    let events = b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n";
    let listening = |_| {
        let mut stream = UnixStream::connect(&rig.socket).expect("it connects");
        stream.write_all(events).expect("it is sent");
        stream
    };
    let listening: Vec<UnixStream> = (0..70).map(listening).collect();
    let status: Status = rig.client().get("/status").expect("it answers");
    assert_eq!(status.name, "array");
    drop((held, listening));
}

#[test]
fn clients_that_do_not_read_do_not_keep_others_out() {
    let rig = Rig::new();
    let requests = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
    let unread = |_| {
        let mut stream = UnixStream::connect(&rig.socket).expect("it connects");
        stream.set_nonblocking(true).expect("it is a socket");
        // The server may stop reading before it has all of them.
        let _ = stream.write(&requests);
        stream
    };
    let held: Vec<UnixStream> = (0..100).map(unread).collect();
    let status: Status = rig.client().get("/status").expect("it answers");
    assert_eq!(status.name, "array");
    drop(held);
}

#[test]
fn bad_clients_change_nothing_and_do_not_keep_others_out() {
    let rig = Rig::new();
    // Half requests, garbage, requests that are too long, clients that never read.
    let mut held: Vec<UnixStream> = Vec::new();
    for at in 0..40 {
        let mut stream = UnixStream::connect(&rig.socket).expect("it connects");
        let half: &[u8] = match at % 3 {
            0 => b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n",
            1 => b"POST /fail HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
            _ => b"\x00\xff\x13 garbage",
        };
        stream.write_all(half).expect("it is sent");
        held.push(stream);
    }
    let long = format!("{{\"device\": \"{}\"}}", "x".repeat(100_000));
    let answer = rig.post("/fail", &long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    let status: Status = rig.client().get("/status").expect("it answers");
    assert_eq!(status.degraded, 0);
    drop(held);
    let status: Status = rig.client().get("/status").expect("it answers");
    assert_eq!((status.degraded, status.state.as_str()), (0, "clean"));
}

#[test]
fn a_socket_is_private_replaces_a_dead_one_and_refuses_a_living_one() {
    use std::os::unix::fs::PermissionsExt;
    let mut rig = Rig::new();
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&rig.socket) & 0o777, 0o600);
    assert_eq!(mode(rig.socket.parent().expect("a directory")) & 0o777, 0o700);
    let managed = || {
        let serving = Serving::of(array(), "other".into(), Vec::new()).expect("threads");
        let stop = Arc::new(AtomicBool::new(false));
        Arc::new(ManagedArray::new("other", Arc::new(serving), Vec::new(), stop))
    };
    let second = ControlServer::start(&rig.socket, managed());
    assert!(matches!(second, Err(ControlError::InUse(_))));
    drop(rig.server.take());
    assert!(!rig.socket.exists());
    let gone = rig.client().get::<Status>("/status").expect_err("it has ended");
    assert!(matches!(gone, ClientError::Connect { .. }), "{gone}");
    // What a killed server leaves, and what is no socket.
    drop(std::os::unix::net::UnixListener::bind(&rig.socket).expect("a socket"));
    assert!(rig.socket.exists());
    drop(ControlServer::start(&rig.socket, managed()).expect("it takes the place"));
    std::fs::write(&rig.socket, "a file").expect("a file");
    let third = ControlServer::start(&rig.socket, managed());
    assert!(matches!(third, Err(ControlError::NoSocket(_))));
    assert_eq!(std::fs::read_to_string(&rig.socket).expect("it is there"), "a file");
}

#[test]
fn an_array_that_a_front_still_holds_is_not_called_clean() {
    let serving = || Serving::of(array(), "array".into(), Vec::new()).expect("threads");
    assert_eq!(serving().stop(), Ok(Ended::Clean));
    let held = serving();
    let front = held.array().clone();
    front.write_at(&[7; 4096], 0).expect("it is written");
    assert_eq!(held.stop(), Err(array::ArrayError::Unclean));
    drop(front);
}
