//! Values of JSON as Python objects, and paths from Python objects.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use serde_json::Value;

use crate::errors::usage;

/// A value as `json.loads` would give it.
pub fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            _ => number.as_f64().unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// One path, or several: `str`, `bytes` or `os.PathLike`, or an iterable of them.
pub fn paths(given: &Bound<'_, PyAny>) -> PyResult<Vec<OsString>> {
    if let Some(path) = one_path(given)? {
        return Ok(vec![path]);
    }
    let mut paths = Vec::new();
    let none = || usage(given.py(), "a path, or an iterable of paths, is required".into());
    for item in given.try_iter().map_err(|_| none())? {
        paths.push(one_path(&item?)?.ok_or_else(none)?);
    }
    match paths.is_empty() {
        true => Err(usage(given.py(), "no path is given".into())),
        false => Ok(paths),
    }
}

/// A path; `None`: it is none.
pub fn one_path(given: &Bound<'_, PyAny>) -> PyResult<Option<OsString>> {
    if given.is_instance_of::<PyBytes>() || given.is_instance_of::<PyString>() {
        let decoded = given.py().import("os")?.call_method1("fsdecode", (given,))?;
        return decoded.extract().map(Some);
    }
    match given.hasattr("__fspath__")? {
        true => Ok(Some(given.extract::<PathBuf>()?.into_os_string())),
        false => Ok(None),
    }
}
