# Draws the figures of C7 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5.15.svg'
set title 'jobs in the system and jobs placed (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'jobs' noenhanced
plot for [column=2:3] 'figure-5.15.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.16.svg'
set title 'mean hypothetical utility, and utility at completion by goal factor (seed 1)' noenhanced
set xlabel 'time, s' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:3] 'figure-5.16.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
