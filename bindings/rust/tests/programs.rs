//! Kept programs of the project's tests, run from Rust. Their results are compared to the byte by `make rust`.

use std::path::PathBuf;
use std::{fs, thread};

use zeropoint::{ElementType, Program, Status, Tensor};

fn kept(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/programs").join(name)
}

fn run(program: &Program, fill: f32) -> Vec<Vec<u8>> {
    let input = &program.inputs().unwrap()[0];
    let elements = vec![fill; input.example.iter().product()];
    let mut session = program.session().unwrap();
    let outputs = session.run(&[Tensor::new(&elements, &input.example).unwrap()]).unwrap();
    outputs.iter().map(|output| output.to_bytes()).collect()
}

#[test]
fn a_program_says_what_it_takes() {
    let inputs = Program::load(kept("image.zpt")).unwrap().inputs().unwrap();
    assert_eq!(inputs.len(), 1);
    assert_eq!((inputs[0].element_type, inputs[0].example.len()), (ElementType::F32, 4));
    assert!(!inputs[0].name.is_empty());
}

#[test]
fn results_have_their_type_and_shape() {
    let program = Program::load(kept("image.zpt")).unwrap();
    let shape = program.inputs().unwrap()[0].example.clone();
    let elements = vec![0.5f32; shape.iter().product()];
    let mut session = program.session().unwrap();
    let outputs = session.run(&[Tensor::new(&elements, &shape).unwrap()]).unwrap();
    let values = outputs[0].to_vec::<f32>().unwrap();
    assert_eq!(values.len(), outputs[0].shape().iter().product::<usize>());
    assert_eq!(outputs[0].to_bytes().len(), 4 * values.len());
    assert!(values.iter().all(|value| value.is_finite()));
    assert_eq!(outputs[0].to_vec::<i64>().unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn a_file_and_its_bytes_are_one_program() {
    let bytes = fs::read(kept("image.zpt")).unwrap();
    assert_eq!(run(&Program::load(kept("image.zpt")).unwrap(), 0.5), run(&Program::from_bytes(&bytes).unwrap(), 0.5));
}

#[test]
fn threads_share_a_program() {
    let program = Program::load(kept("image.zpt")).unwrap();
    let want = run(&program, 0.25);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(run(&program, 0.25), want));
        }
    });
}

#[test]
fn a_session_outlives_its_program() {
    let program = Program::load(kept("image.zpt")).unwrap();
    let (want, shape) = (run(&program, 1.0), program.inputs().unwrap()[0].example.clone());
    let mut session = program.session().unwrap();
    drop(program);
    let elements = vec![1.0f32; shape.iter().product()];
    for _ in 0..2 {
        let outputs = session.run(&[Tensor::new(&elements, &shape).unwrap()]).unwrap();
        assert_eq!(outputs[0].to_bytes(), want[0]);
    }
    session.reset().unwrap();
}

#[test]
fn mistakes_are_errors_with_a_status() {
    let status = |result: Result<Program, zeropoint::Error>| result.err().unwrap().status();
    assert_eq!(status(Program::load(kept("no such file"))), Status::Io);
    assert_eq!(status(Program::load("a\0b")), Status::InvalidArgument);
    assert_eq!(status(Program::from_bytes(b"no program")), Status::BadFile);
    let bytes = fs::read(kept("image.zpt")).unwrap();
    assert_eq!(status(Program::from_bytes(&bytes[..bytes.len() / 2])), Status::BadFile);

    let program = Program::from_bytes(&bytes).unwrap();
    let mut session = program.session().unwrap();
    assert_eq!(session.run(&[]).err().unwrap().status(), Status::InvalidArgument);
    let error = session.run(&[Tensor::new(&[0.0f32; 3], &[3]).unwrap()]).err().unwrap();
    assert_eq!(error.status(), Status::BadShape);
    assert!(!error.to_string().is_empty());

    let limited = Program::with_memory_limit(&bytes, 1);
    let shape = program.inputs().unwrap()[0].example.clone();
    let elements = vec![0.0f32; shape.iter().product()];
    let too_large = limited
        .and_then(|program| program.session()?.run(&[Tensor::new(&elements, &shape)?]).map(|outputs| outputs.len()));
    assert!(too_large.is_err());
}

#[test]
fn a_tensor_is_as_large_as_its_shape() {
    assert!(Tensor::new(&[1i64, 2, 3], &[3]).is_ok());
    assert!(Tensor::new(&[1u8; 6], &[2, 3]).is_ok());
    assert!(Tensor::new(&[1u8; 6], &[2, 4]).is_err());
    assert!(Tensor::new(&[0f32; 1], &[1; 9]).is_err());
    assert!(Tensor::new(&[0f32; 4], &[usize::MAX, 4]).is_err());
    assert!(Tensor::from_bytes(ElementType::F16, &[0; 4], &[2]).is_ok());
}

#[test]
fn the_library_says_what_it_is() {
    assert_eq!(zeropoint::version(), env!("CARGO_PKG_VERSION"));
    assert!(!zeropoint::instruction_set().is_empty());
    assert!(zeropoint::num_threads() >= 1);
    assert_eq!(zeropoint::set_num_threads(0).unwrap_err().status(), Status::InvalidArgument);
}
