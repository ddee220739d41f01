// What the tests beside this header share.
#pragma once

#include "core/test_files.h"
