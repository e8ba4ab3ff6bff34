#pragma once

#include <lockstep/array.h>
#include <lockstep/callback.h>
#include <lockstep/checkpoint.h>
#include <lockstep/config.h>
#include <lockstep/early_stopping.h>
#include <lockstep/error.h>
#include <lockstep/result.h>
#include <lockstep/run_handle.h>
#include <lockstep/session.h>
#include <lockstep/trainer.h>
#include <lockstep/value.h>
