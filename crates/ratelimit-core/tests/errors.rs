//! What a program prints whose `main` returns an error: the `Debug` of the error.

use std::error::Error;
use std::io;

use ratelimit_core::meter::CorruptState;
use ratelimit_core::{AcquireError, CheckError, ErrorKind, Limit, LimitError, Limits, StoreError};

fn printed(error: impl Error) -> String {
    format!("{error:?}")
}

fn refused() -> StoreError {
    StoreError::new("redis", ErrorKind::Unreachable, "cannot connect")
        .at("127.0.0.1:6379")
        .caused_by(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused"))
}

#[test]
fn errors_print_their_text_and_their_sources() {
    let text = "redis at 127.0.0.1:6379 is unreachable: cannot connect (nothing was charged; try again later)\n\n\
                Caused by:\n    connection refused";
    assert_eq!(printed(refused()), text);
    assert_eq!(printed(CheckError::Store(refused())), text);
    assert_eq!(printed(AcquireError::Check(CheckError::Store(refused()))), text);
    assert_eq!(format!("{:#?}", refused()), text);
    let boxed: Box<dyn Error> = refused().into();
    assert_eq!(format!("{:?}", boxed), text);

    let alone = StoreError::new("memory", ErrorKind::Full, "there is no room");
    assert_eq!(printed(alone.clone()), alone.to_string());
    assert_eq!(printed(LimitError::NoLimits), LimitError::NoLimits.to_string());
    assert_eq!(printed(CorruptState), CorruptState.to_string());
    let limit = "5/fortnight".parse::<Limit>().unwrap_err();
    assert_eq!(printed(limit.clone()), limit.to_string());
    let limits = "5/min; 6/min".parse::<Limits>().unwrap_err();
    assert_eq!(printed(limits.clone()), limits.to_string());
    assert_eq!(printed(limits.limit_error().unwrap()), limits.limit_error().unwrap().to_string());
}
