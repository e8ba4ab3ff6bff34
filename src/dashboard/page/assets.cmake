# cmake -D PAGE=<page/> -D PREBUILT=<assets/page.html> -D SOURCE=<file> -P assets.cmake
#
# Writes the page as a C++ source, which defines kPage. The prebuilt page names the hash of the sources that it was built from; if that is
# theirs, or npm is missing or fails, it is used.

file(GLOB sources "${PAGE}/*.js" "${PAGE}/*.css" "${PAGE}/*.html" "${PAGE}/package.json" "${PAGE}/package-lock.json"
     "${PAGE}/build.mjs")
list(SORT sources)
set(hashes "")
foreach(source IN LISTS sources)
  file(SHA256 "${source}" hash)
  string(APPEND hashes "${hash}\n")
endforeach()
string(SHA256 wanted "${hashes}")

set(page "${PREBUILT}")
file(STRINGS "${PREBUILT}" named REGEX "^<!-- built from [0-9a-f]+ -->$" LIMIT_COUNT 1)
if(NOT named STREQUAL "<!-- built from ${wanted} -->")
  find_program(npm npm)
  if(npm)
    get_filename_component(work "${SOURCE}" DIRECTORY)
    set(work "${work}/page")
    file(REMOVE_RECURSE "${work}/built")
    file(MAKE_DIRECTORY "${work}")
    file(COPY ${sources} "${PAGE}/.npmrc" DESTINATION "${work}")
    execute_process(COMMAND "${npm}" ci --silent --fetch-retries=1 WORKING_DIRECTORY "${work}" RESULT_VARIABLE failed)
    if(NOT failed)
      execute_process(COMMAND node build.mjs built/page.html ${wanted} WORKING_DIRECTORY "${work}"
                      RESULT_VARIABLE failed)
    endif()
    if(NOT failed)
      set(page "${work}/built/page.html")
    endif()
  endif()
  if(page STREQUAL PREBUILT)
    message(WARNING "the dashboard's page is older than its sources: they cannot be built without npm")
  endif()
endif()

file(READ "${page}" text)
# A compiler must accept string literals of 64 KiB, so the page is several of them.
string(LENGTH "${text}" left)
set(at 0)
set(literals "")
while(left GREATER 0)
  string(SUBSTRING "${text}" ${at} 30000 part)
  string(APPEND literals "R\"lockstep_page(${part})lockstep_page\"\n")
  math(EXPR at "${at} + 30000")
  math(EXPR left "${left} - 30000")
endwhile()
file(CONFIGURE OUTPUT "${SOURCE}" CONTENT
[[#include "dashboard/page.h"

namespace lockstep::dashboard {
const std::string_view kPage =
@literals@;
}  // namespace lockstep::dashboard
]] @ONLY)
