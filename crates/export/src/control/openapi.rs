//! The description of the control socket, OpenAPI 3.1, made of the types that go over it.

use admin::serving::api::{
    Add, Done, Event, OfDevice, Problem, Replace, Scrub, Set, Status, Stopped,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

const ABOUT: &str = "HTTP on a unix socket, one for each server: \
$XDG_RUNTIME_DIR/raidlab/NAME.sock; without that variable, root's is in /run/raidlab, another \
user's in /tmp/raidlab-UID. Only its user, and root, can connect.";

/// The document.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut answers = settings.clone().for_serialize().into_generator();
    // Fields of an order may be left out.
    let mut orders = settings.for_deserialize().into_generator();
    let mut paths = Map::new();

    let status = answer::<Status>(&mut answers, "As it is now.");
    paths.insert("/status".into(), get("The state of the array.", status, &mut answers));
    let about =
        "Metrics in Prometheus' text format; labels as node_exporter's mdadm collector has them.";
    let text = content("The metrics.", "text/plain; version=0.0.4", json!({"type": "string"}));
    paths.insert("/metrics".into(), get(about, text, &mut answers));
    let about = "Events as server-sent events, as they happen; the last 1000 are kept.";
    let event = answers.subschema_for::<Event>().to_value();
    let stream = content("The data of each event is this.", "text/event-stream", event);
    let mut events = get(about, stream, &mut answers);
    events["get"]["parameters"] = json!([{
        "name": "after",
        "in": "query",
        "required": false,
        "schema": {"type": "integer", "minimum": 0, "default": 0},
        "description": "Only those with a higher number.",
    }]);
    paths.insert("/events".into(), events);
    let itself = content("It.", "application/json", json!({"type": "object"}));
    paths.insert("/openapi.json".into(), get("This document.", itself, &mut answers));

    let mut order = |path: &str, about: &str, body: Value| {
        let done = answer::<Done>(&mut answers, "It was carried out.");
        let mut post = json!({"post": {"summary": about, "responses": done}});
        post["post"]["responses"]["default"] = refused(&mut answers);
        post["post"]["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": body}},
        });
        paths.insert(path.into(), post);
    };
    let about = "Takes a member out of service, as mdadm --fail.";
    order("/fail", about, body::<OfDevice>(&mut orders));
    let about =
        "Has a device that is out of service, or a spare, leave the array, as mdadm --remove.";
    order("/remove", about, body::<OfDevice>(&mut orders));
    let about = "Has a device join, as mdadm --add: into an empty slot, else as a spare.";
    order("/add", about, body::<Add>(&mut orders));
    let about = "Has a device replace a member that still serves, as mdadm --replace.";
    order("/replace", about, body::<Replace>(&mut orders));
    let about = "Begins or ends a scrub, holds background work.";
    order("/scrub", about, body::<Scrub>(&mut orders));
    order("/set", "Changes settings.", body::<Set>(&mut orders));

    let about = "Has the server stop: fronts end, the array is flushed and marked clean. The \
                 answer comes when that has ended.";
    let stopped = answer::<Stopped>(&mut answers, "It has stopped; whether the array is clean.");
    let mut stop = json!({"post": {"summary": about, "responses": stopped}});
    stop["post"]["responses"]["default"] = refused(&mut answers);
    paths.insert("/stop".into(), stop);

    let mut schemas = answers.take_definitions(true);
    schemas.append(&mut orders.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "raidlab control socket",
            "version": "1",
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn get(about: &str, answer: Value, answers: &mut SchemaGenerator) -> Value {
    let mut get = json!({"get": {"summary": about, "responses": answer}});
    get["get"]["responses"]["default"] = refused(answers);
    get
}

fn answer<T: JsonSchema>(answers: &mut SchemaGenerator, about: &str) -> Value {
    content(about, "application/json", answers.subschema_for::<T>().to_value())
}

fn content(about: &str, kind: &str, schema: Value) -> Value {
    json!({"200": {"description": about, "content": {kind: {"schema": schema}}}})
}

fn refused(answers: &mut SchemaGenerator) -> Value {
    let about = "It was refused: 409 by the array, 4xx because the request cannot be understood.";
    answer::<Problem>(answers, about)["200"].take()
}

fn body<T: JsonSchema>(orders: &mut SchemaGenerator) -> Value {
    orders.subschema_for::<T>().to_value()
}
